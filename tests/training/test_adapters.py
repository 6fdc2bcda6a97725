"""Adapters learn alone, and are merged without a trace."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from asrkit import train
from asrkit.config.read_yaml import ConfigError
from asrkit.errors import UserError
from asrkit.model import Network
from asrkit.model_file import load_model
from asrkit.text import CharTokenizer
from asrkit.training.adapters import AdaptedLinear, add_adapters, merge, new_label_masks
from asrkit.training.optimizer import parameters_of
from asrkit.training.warm_start import load_training
from tests.conftest import tiny_model
from tests.laws.test_resume import same, stop_after, weights
from tests.test_model_file import a_file
from tests.training.test_fine_tuning import minimal

TRANSDUCER = {"kind": "transducer", "predictor_dim": 8, "joint_dim": 8}


@torch.no_grad()
def frames_of(model: Network) -> Tensor:
    feats = torch.randn(2, 64, 80, generator=torch.Generator().manual_seed(1)).double()
    encoded = model.encoder(feats, torch.tensor([64, 48]), model.encoder.init_state(2, 8), 4).frames
    return model.head.emissions(encoded)


def test_merged_adapters_compute_the_same() -> None:
    model = tiny_model()
    plain, before = frames_of(model), model.state_dict().keys()
    add_adapters(model, 3, 12)
    assert torch.equal(frames_of(model), plain)  # up is zero
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".up"):
                parameter.normal_(std=0.2)
    unmerged = frames_of(model)
    # Of each layer: two of attention, two of both feed-forwards.
    assert sum(isinstance(each, AdaptedLinear) for each in model.modules()) == 3 * 6
    merge(model)
    assert model.state_dict().keys() == before
    assert (frames_of(model) - unmerged).abs().max() < 1e-9
    assert (plain - unmerged).abs().max() > 1e-2  # control


@pytest.mark.parametrize("head", ["ctc", TRANSDUCER])
def test_only_adapters_and_rows_of_new_labels_learn(head: Any) -> None:
    model = tiny_model(12, head)
    masks = new_label_masks(model, 9)
    rows = {
        name: mask for (name, _), mask in zip(model.head.named_parameters(), masks, strict=True)
    }
    learning = {name: mask for name, mask in rows.items() if mask.any()}
    assert learning
    for name, mask in learning.items():
        assert len(mask) == 12, name
        assert not mask[:9].any()
        assert mask[9:].all()
    add_adapters(model, 2, 9)
    found = {name for name, p in model.named_parameters() if p.requires_grad}
    assert {n for n in found if n.startswith("head.")} == {f"head.{name}" for name in learning}
    assert {n.rpartition(".")[2] for n in found if not n.startswith("head.")} == {"up", "down"}


@pytest.fixture
def config(corpus: Path, tmp_path: Path) -> Path:
    """A configuration that starts from a model without the letters n and o."""
    return minimal(tmp_path, corpus, a_file(CharTokenizer(list("yes "))), epochs=2, average=2)


def trained(config: Path, *overrides: str) -> Path:
    """Train with these overrides; return the folder of the model."""
    assert train.main(["--config", str(config), *overrides]) == 0
    return config.parent / "out"


def test_a_training_merges_its_adapters_and_is_resumed_bit_for_bit(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, whole = load_model(tmp_path / "m.safetensors"), tmp_path / "whole"
    options = ["training.keep=adapters", "training.adapter_rank=2"]
    trained(config, *options, f"training.output_dir={whole}")
    assert [path.name for path in whole.glob("*.safetensors")] == ["model.safetensors"]
    made = load_model(whole)
    old, new = first.model.state_dict(), made.model.state_dict()
    encoder = {name for name in old if name.startswith("encoder.")}
    assert sum(not torch.equal(old[name], new[name]) for name in encoder) == 3 * 6
    known = first.tokenizer.vocab_size
    assert made.tokenizer.vocab_size == known + 2
    assert torch.equal(new["head.weight"][:known], old["head.weight"])
    assert torch.equal(new["head.bias"][:known], old["head.bias"])
    assert "M of them learn" in (whole / "train.log").read_text()
    stop_after(3, config, monkeypatch, *options)
    assert same(weights(whole), weights(trained(config, *options, "--resume")))


def test_frozen_parts_do_not_move(config: Path, tmp_path: Path) -> None:
    parts = ("encoder.subsampling", "encoder.layers.0", "head.bias")
    found = weights(trained(config, f"training.freeze=[{', '.join(parts)}]"))
    still = (*parts[:2], "encoder.mean", "encoder.scale")
    for name, before in load_model(tmp_path / "m.safetensors").model.state_dict().items():
        if name.startswith("encoder."):
            assert torch.equal(found[name], before) == name.startswith(still), name


def test_what_cannot_be_frozen_or_kept(config: Path) -> None:
    with pytest.raises(
        UserError, match=r"network has no 'encoder\.layer\.0'; nearest: encoder\.layers\.0, "
    ):
        parameters_of(tiny_model(), "encoder.layer.0", "training.freeze")
    for overrides, told in (
        (["training.keep=adapters", "training.freeze=[head]"], r"training\.freeze.*no effect"),
        (["training.adapter_rank=4"], r"training\.adapter_rank': 4 has no effect while"),
        (["training.keep=adapters", "training.keep_labels=false"], "needs training.keep_labels"),
        (["training.start_from=null", "training.freeze=[head]", "training.keep_labels=false"],
         "no effect while training.start"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=told):
            load_training(config, overrides)
    assert train.main(["--config", str(config), "training.freeze=[encoder, head]"]) == 2
