"""Other norms and activations: what is replaced, and that no model file is left of them."""

from pathlib import Path

import pytest
import torch
from torch import nn

from asrkit import train
from asrkit.model import ConformerEncoder, layer
from tools.studies import layer_kinds
from tools.studies.layer_kinds import ACTIVATIONS, BiasNorm, RMSNorm, main, replace_norms, swoosh


def small_encoder() -> ConformerEncoder:
    return ConformerEncoder(dim=8, num_heads=2, num_layers=2, ffn_dim=8, subsampling="conv8")


@pytest.mark.parametrize(("norm", "left"), [("bias", 0), ("rms", 0), ("last", 2), ("none", 0)])
def test_norms_are_replaced(norm: str, left: int) -> None:
    encoder = small_encoder()
    replace_norms(encoder, norm)
    found = [each for each in encoder.layers.modules() if isinstance(each, nn.LayerNorm)]
    assert len(found) == left
    assert not left or found == [each.norm for each in encoder.layers]
    feats = torch.randn(1, 64, 80)
    encoded = encoder(feats, torch.tensor([64]), encoder.init_state(1, 4), 4).frames
    assert encoded.isfinite().all()


def test_a_norm_without_a_bias_is_the_root_mean_square() -> None:
    x = torch.randn(3, 8, dtype=torch.float32)
    norm = BiasNorm(8)
    assert torch.allclose(norm(x), RMSNorm(8, eps=1e-5)(x), atol=1e-6)
    nn.init.ones_(norm.bias)
    assert not torch.allclose(norm(x), RMSNorm(8, eps=1e-5)(x), atol=1e-2)


def test_swoosh_is_zero_at_zero() -> None:
    """Zipformer's constants are chosen so (3.4); SwooshL's has three digits."""
    for function, error in zip(ACTIVATIONS["swoosh"], (0.02, 1e-6), strict=True):
        assert abs(float(function(torch.zeros(())))) < error
    assert abs(float(swoosh(torch.zeros(()), 1.0, 0.0))) > 0.3


def test_a_training_has_the_kinds_and_leaves_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name in [(ConformerEncoder, "__init__"), (layer, "functional"),
                        (layer.FeedForward, "forward")]:  # fmt: skip
        monkeypatch.setattr(owner, name, getattr(owner, name))  # restored after the test
    output = tmp_path / "out"
    plain = layer.FeedForward(8, 8, 0.0)
    x = torch.randn(1, 2, 8)
    before = plain(x)

    def training(arguments: list[str]) -> int:
        assert arguments == ["--config", "an4", f"training.output_dir={output}"]
        norms = [each for each in small_encoder().layers.modules() if isinstance(each, BiasNorm)]
        assert len(norms) == 12  # six in each layer
        assert not torch.allclose(plain(x), before)
        (output / "epochs").mkdir(parents=True)
        (output / "epochs" / "1.safetensors").touch()
        (output / "train.log").touch()
        return 0

    monkeypatch.setattr(train, "main", training)
    assert main(["train", "--norm", "bias", "--activation", "relu2", "--config", "an4",
                 "--output", str(output)]) == 0  # fmt: skip
    assert not list(tmp_path.rglob("*.safetensors"))
    assert (output / "train.log").exists()


def test_models_of_others_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(SystemExit):
        main(["train", "--norm", "bias", "--output", str(tmp_path), "--config", "an4"])
    assert "exists already: name a new folder" in capsys.readouterr().err
    assert (tmp_path / "model.safetensors").exists()


def test_costs_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch.setattr(layer, "functional", layer.functional)
        patch.setattr(layer.FeedForward, "forward", layer.FeedForward.forward)
        patch.setattr(layer_kinds, "FRAMES", 200)
        main(["costs", "--dim", "8", "--layers", "1", "--ffn-dim", "8", "--rounds", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert lines[1].startswith("layer_norm, silu: ")
    assert lines[1].endswith(", 1.000")
