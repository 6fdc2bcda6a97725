"""The command: what it writes, asks for and refuses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from asrkit.interop import import_checkpoint
from asrkit.interop.nemo_settings import Classifier, Encoder, Features, Model
from asrkit.model_file import load_model
from tests.running import run
from tools import nemo_checkpoint

SIZES = (1, 16, 4, 5)
Change = Callable[[dict[str, Any], dict[str, torch.Tensor]], object]


def checkpoint(path: Path, change: Change | None = None) -> Path:
    """A small .nemo file, whose configuration and weights `change` may change."""
    settings, weights = nemo_checkpoint.settings(*SIZES), nemo_checkpoint.weights(*SIZES)
    if change is not None:
        change(settings, weights)
    nemo_checkpoint.write(path, settings, weights)
    return path


@pytest.fixture
def nemo(tmp_path: Path) -> Path:
    return checkpoint(tmp_path / "m.nemo")


def test_a_model_file_that_says_where_it_is_from(
    nemo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "m.safetensors"
    options = ("import", "nemo", nemo, "--output", output, "--licence", "CC-BY-4.0")
    assert run(*options) == 0
    assert "from NeMo 2.5.0" in capsys.readouterr().out
    record = load_model(output).training["imported"]
    assert record["licence"] == "CC-BY-4.0"
    assert record["name"] == "m"
    assert len(record["sha256"]["m.nemo"]) == 64
    assert run("info", output) == 0
    shown = capsys.readouterr().out
    assert "source: NeMo 2.5.0" in shown
    assert "decodes at  1120 ms with 5600 ms before it" in shown
    assert "head        ctc" in shown


def of(section: str, key: str, value: object) -> Change:
    return lambda settings, _: settings[section].update({key: value})


def setting(**values: object) -> Change:
    return lambda settings, _: settings.update(values)


def weight(name: str, tensor: torch.Tensor | None = None) -> Change:
    """Add or replace a weight; without a tensor, remove it."""
    if tensor is None:
        return lambda _, weights: weights.pop(name)
    return lambda _, weights: weights.update({name: tensor})


def with_statistics(settings: dict[str, Any], weights: dict[str, torch.Tensor]) -> None:
    settings["encoder"].update(conv_norm_type="batch_norm")
    norm = "encoder.layers.0.conv.batch_norm.running"
    weights |= {f"{norm}_{part}": torch.ones(16, 1) for part in ("mean", "var")}


ONE = torch.zeros(1)
REFUSED: dict[str, Change] = {
    "'preprocessor.normalize': input should be 'NA' or None": (
        of("preprocessor", "normalize", "per_feature")
    ),
    "sample_rate': input should be 16000, got 8000": of("preprocessor", "sample_rate", 8000),
    "'preprocessor.window_size': input should be": of("preprocessor", "window_size", 0.02),
    "unknown key 'preprocessor.mel_scale'": of("preprocessor", "mel_scale", "htk"),
    "'preprocessor._target_': input should": of("preprocessor", "_target_", "x.Mfcc"),
    "conv_context_size': input should be 'causal'": of("encoder", "conv_context_size", None),
    "input should be 'dw_striding', got": of("encoder", "subsampling", "striding"),
    "causal_downsampling': input should be True": of("encoder", "causal_downsampling", False),
    "should be 'chunked_limited'": of("encoder", "att_context_style", "regular"),
    "'encoder.att_context_size': list should": of("encoder", "att_context_size", []),
    "'encoder.att_context_size.0.0': input": of("encoder", "att_context_size", [-1, 13]),
    "'encoder.att_context_size.1': list should": of("encoder", "att_context_size", [[1, 1], [1]]),
    "should be 'rel_pos', got 'rel_pos_lo'": of("encoder", "self_attention_model", "rel_pos_lo"),
    "d_model': input should be less than": of("encoder", "d_model", 10**9),
    "the weight 'encoder.layers.1": of("encoder", "n_layers", 60_000),
    "must be a multiple of num_heads": of("encoder", "n_heads", 3),
    "weight 'encoder.subsampling.": of("encoder", "subsampling_conv_channels", 8),
    "unknown key 'encoder.a\\x1b'": of("encoder", "a\x1b", 1),
    "xxx": of("encoder", "x" * 5000, 1),
    "running_mean' is missing": of("encoder", "conv_norm_type", "batch_norm"),
    "have different lengths": with_statistics,
    "missing key 'encoder'": lambda settings, _: settings.pop("encoder"),
    "labels must be characters": of("decoder", "vocabulary", ["ab"]),
    "'decoder._target_': input": of("decoder", "_target_", "x.LSTMDecoder"),
    "unknown key 'decoder.multisoftmax'": of("decoder", "multisoftmax", True),
    "'decoder.add_blank': input": of("decoder", "add_blank", False),
    "'tokenizer.type': input should be 'bpe'": setting(tokenizer={"type": "agg"}),
    "unknown key 'prompts'": setting(prompts=128),
    "the model reads a language prompt": weight("prompt_kernel.2.weight", ONE),
    "'decoder.decoder_layers.1.bias' is unknown": weight("decoder.decoder_layers.1.bias", ONE),
    "missing key 'decoder._target_'": weight("joint.enc.weight", ONE),
    "featurizer.mean' is unknown": weight("preprocessor.featurizer.mean", ONE),
    "featurizer.fb does not match": weight("preprocessor.featurizer.fb", torch.zeros(1, 80, 257)),
    "linear_q.bias' is missing": weight("encoder.layers.0.self_attn.linear_q.bias"),
    "no CTC head and no transducer": weight("decoder.decoder_layers.0.weight"),
    "'encoder.x' is unknown": weight("encoder.x", ONE),
    "must be (16,), got (3,)": weight("encoder.layers.0.norm_out.bias", torch.ones(3)),
    "got torch.int64": weight("encoder.layers.0.norm_out.bias", torch.ones(16).long()),
    "head.bias holds NaN or infinity": weight("decoder.decoder_layers.0.bias", torch.ones(6) / 0),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals(message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = checkpoint(tmp_path / "m.nemo", REFUSED[message])
    options = ("--output", tmp_path / "m.safetensors", "--licence", "MIT")
    assert run("import", "nemo", path, *options) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("asrkit import: ")
    assert len(error) < len(str(path)) + 500
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "m.safetensors").exists()


def test_the_options_of_the_command(
    nemo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "m.safetensors"
    (tmp_path / "text.nemo").write_text("hello")
    (tmp_path / "empty.nemo").write_bytes(b"")
    for name, options, message in [
        (nemo, (), "is not known, it states none: add --licence"),
        (nemo, ("--licence", "a\x1b]0;"), "must be one printable line"),
        (nemo, ("--licence", "MIT", "--output", nemo), "name another file"),
        (tmp_path / "missing.nemo", ("--licence", "MIT"), ""),
        (tmp_path / "text.nemo", ("--licence", "MIT"), "not a tar archive, or damaged"),
        (tmp_path / "empty.nemo", ("--licence", "MIT"), "not a tar archive, or damaged"),
        (tmp_path, ("--licence", "MIT"), ""),
    ]:
        assert run("import", "nemo", name, "--output", output, *options) == 2
        error = capsys.readouterr().err
        assert message in error
        assert len(error.splitlines()) == 1
        assert not output.exists()


def test_settings_that_are_harmless_change_no_number(tmp_path: Path) -> None:
    """Every one of the list, with values as they are published."""

    def change(settings: dict[str, Any], _: object) -> None:
        for section, part in (
            (settings, Model), (settings["encoder"], Encoder),
            (settings["preprocessor"], Features), (settings["decoder"], Classifier),
        ):  # fmt: skip
            section.update({name: section.get(name, {}) for name in part.IGNORED.split()})
        settings["ctc_loss_weight"] = 0.3

    files = [
        import_checkpoint("nemo", checkpoint(tmp_path / f"{i}.nemo", each)).file
        for i, each in enumerate((None, change))
    ]
    assert files[0].config == files[1].config
    ours, theirs = (each.model.state_dict() for each in files)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_what_nemo_leaves_open(tmp_path: Path) -> None:
    """Biases that are not there, one context, and the input as it is."""

    def change(settings: dict[str, Any], weights: dict[str, torch.Tensor]) -> None:
        settings["encoder"]["att_context_size"] = [6, 3]
        settings["encoder"] |= {"xscaling": False, "use_bias": False}
        for name in [each for each in weights if "linear" in each and each.endswith("bias")]:
            del weights[name]

    file = import_checkpoint("nemo", checkpoint(tmp_path / "m.nemo", change)).file
    context = file.config.context
    assert (context.chunk_sizes, context.left_contexts) == ([4], [4])
    assert not file.model.encoder.layers[0].attention.qkv.bias.any()
    scaled = import_checkpoint("nemo", checkpoint(tmp_path / "n.nemo")).file
    outs = [each.model.encoder.subsampling.out.weight for each in (file, scaled)]
    assert torch.equal(4.0 * outs[0], outs[1])
