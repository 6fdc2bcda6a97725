"""The command: what it writes, asks for and refuses; mutated checkpoints."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from asrkit.interop import import_checkpoint
from asrkit.interop.checkpoint import CheckpointError
from asrkit.interop.nemo_settings import ENCODER, FEATURES, HEAD, MODEL
from asrkit.model_file import load_model
from tests.running import run
from tools import nemo_checkpoint

SIZES = (1, 16, 4, 5)


def checkpoint(
    path: Path, change: Callable[[dict[str, Any], dict[str, torch.Tensor]], object] | None = None
) -> Path:
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


def test_the_licence_is_asked_for(
    nemo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "m.safetensors"
    assert run("import", "nemo", nemo, "--output", output) == 2
    error = capsys.readouterr().err
    assert "does not state its licence: add --licence" in error
    assert len(error.splitlines()) == 1
    assert not output.exists()
    assert run("import", "nemo", nemo, "--output", output, "--licence", "a\x1b]0;") == 2
    assert "must be one printable line" in capsys.readouterr().err
    assert run("import", "nemo", nemo, "--output", nemo, "--licence", "MIT") == 2
    assert "name another file" in capsys.readouterr().err


def of(section: str, key: str, value: object) -> Callable[..., object]:
    return lambda settings, _: settings[section].update({key: value})


REFUSED: dict[str, tuple[Callable[..., object], str]] = {
    "utterance": (of("preprocessor", "normalize", "per_feature"), "over the utterance cannot"),
    "rate": (of("preprocessor", "sample_rate", 8000), "sample_rate must be 16000, got 8000"),
    "mels": (of("encoder", "feat_in", 64), "encoder.feat_in must be 80, got 64"),
    "convolution": (of("encoder", "conv_context_size", None), "a symmetric convolution cannot"),
    "subsampling": (
        of("encoder", "subsampling", "vggnet"),
        "must be one of striding by 4, dw_",
    ),
    "symmetric": (of("encoder", "causal_downsampling", False), "a symmetric subsampling cannot"),
    "attention": (of("encoder", "att_context_style", "regular"), "must be chunked_limited"),
    "unbounded": (of("encoder", "att_context_size", [-1, 13]), "unbounded contexts"),
    "local": (of("encoder", "self_attention_model", "rel_pos_local_attn"), "must be rel_pos"),
    "squeezeformer": (of("encoder", "_target_", "x.SqueezeformerEncoder"), "ConformerEncoder"),
    "size": (of("encoder", "d_model", "large"), "d_model must be a whole number"),
    "huge": (of("encoder", "d_model", 10**9), "d_model must be a whole number"),
    "many": (of("encoder", "n_layers", 60_000), "the weight 'encoder.layers.1"),
    "heads": (of("encoder", "n_heads", 3), "must be a multiple of num_heads"),
    "channels": (of("encoder", "subsampling_conv_channels", 8), "weight 'encoder.subsampling."),
    "words": (of("decoder", "vocabulary", ["ab"]), "labels must be characters without a tokenizer"),
    "labels": (of("decoder", "vocabulary", "abc"), "decoder.vocabulary must be a list of labels"),
    "sentencepiece": (
        lambda settings, _: settings.update(tokenizer={"type": "agg"}),
        "tokenizer must be a sentencepiece model in the archive",
    ),
    "section": (lambda settings, _: settings.pop("encoder"), "no section 'encoder'"),
    "prompt": (
        lambda settings, _: settings.update(
            target="nemo.collections.asr.models.x.EncDecOtherModelWithPrompt"
        ),
        "EncDecOtherModelWithPrompt' are not supported; the supported",
    ),
    "class": (lambda settings, _: settings.update(target=7), "models of class 7 are not supported"),
    "rnnt": (
        lambda settings, _: settings.update(target="x.EncDecRNNTBPEModel"),
        "this 'x.EncDecRNNTBPEModel' has no joint network",
    ),
    "prompts": (
        lambda settings, _: settings.update(num_prompts=128),
        "model.num_prompts is unknown: its value 128 may change",
    ),
    "defaults": (
        lambda settings, _: settings.update(model_defaults={"initialize_prompt_feature": True}),
        "model_defaults.initialize_prompt_feature is unknown",
    ),
    "unknown": (of("encoder", "skip_layers", [3]), "encoder.skip_layers is unknown"),
    "unprintable": (of("encoder", "a\x1b", 1), "encoder.'a\\x1b' is unknown"),
    "long": (of("encoder", "x" * 5000, 1), "xxx is unknown"),
    "unknown feature": (of("preprocessor", "mel_scale", "htk"), "preprocessor.mel_scale is"),
    "torchaudio": (of("preprocessor", "use_torchaudio", True), "use_torchaudio must be False"),
    "samples": (of("preprocessor", "n_window_size", 320), "n_window_size must be None, got 320"),
    "features": (of("preprocessor", "_target_", "x.Mfcc"), "preprocessor._target_ must be"),
    "dynamic": (of("encoder", "conv_context_style", "dcc"), "conv_context_style must be regular"),
    "dual": (of("encoder", "conv_dual_mode", True), "conv_dual_mode must be False"),
    "menu": (of("encoder", "att_chunk_context_size", [[70]]), "att_chunk_context_size must be"),
    "scaling": (of("encoder", "xscaling", "no"), "encoder.xscaling must be True or False"),
    "head": (of("decoder", "_target_", "x.LSTMDecoder"), "decoder._target_ must be"),
    "unknown head": (of("decoder", "multisoftmax", True), "decoder.multisoftmax is unknown"),
    "no blank": (of("decoder", "add_blank", False), "decoder.add_blank must be True"),
    "temperature": (
        lambda settings, _: settings.update(decoding={"temperature": 2.0}),
        "decoding.temperature must be 1.0, got 2.0",
    ),
    "prompt kernel": (
        lambda _, weights: weights.update({"prompt_kernel.0.weight": torch.zeros(1)}),
        "the weight 'prompt_kernel.0.weight' is unknown",
    ),
    "second head layer": (
        lambda _, weights: weights.update({"decoder.decoder_layers.1.bias": torch.zeros(1)}),
        "the weight 'decoder.decoder_layers.1.bias' is unknown",
    ),
    "joint": (
        lambda _, weights: weights.update({"joint.enc.weight": torch.zeros(1)}),
        "the weight 'joint.enc.weight' is unknown",
    ),
    "feature weight": (
        lambda _, weights: weights.update({"preprocessor.featurizer.mean": torch.zeros(80)}),
        "the weight 'preprocessor.featurizer.mean' is unknown",
    ),
    "bias": (
        lambda _, weights: weights.pop("encoder.layers.0.self_attn.linear_q.bias"),
        "the weight 'encoder.layers.0.self_attn.linear_q.bias' is missing",
    ),
    "transducer": (
        lambda settings, weights: weights.pop("decoder.decoder_layers.0.weight"),
        "this 'nemo.collections.asr.models",
    ),
    "missing": (
        lambda settings, weights: weights.pop("encoder.layers.0.self_attn.linear_q.weight"),
        "the weight 'encoder.layers.0.self_attn.linear_q.weight' is missing",
    ),
    "more": (
        lambda settings, weights: weights.update({"encoder.x": torch.zeros(1)}),
        "the weight 'encoder.x' is unknown",
    ),
    "shape": (
        lambda settings, weights: weights.update({"encoder.layers.0.norm_out.bias": torch.ones(3)}),
        "weight 'encoder.layers.0.norm.bias' must be (16,), got (3,)",
    ),
    "type": (
        lambda settings, weights: weights.update(
            {"encoder.layers.0.norm_out.bias": torch.ones(16, dtype=torch.int64)}
        ),
        "must be floating point, got torch.int64",
    ),
    "filters": (
        lambda settings, weights: weights.update(
            {"preprocessor.featurizer.fb": torch.zeros(1, 80, 257)}
        ),
        "preprocessor.featurizer.fb does not match the settings of the preprocessor",
    ),
    "norm": (
        of("encoder", "conv_norm_type", "batch_norm"),
        "the weight 'encoder.layers.0.conv.batch_norm.running_mean' is missing",
    ),
    "statistics": (
        lambda settings, weights: (
            settings["encoder"].update(conv_norm_type="batch_norm"),
            weights.update(
                {
                    f"encoder.layers.0.conv.batch_norm.running_{part}": torch.ones(16, 1)
                    for part in ("mean", "var")
                }
            ),
        ),
        "have different lengths",
    ),
}


def test_settings_that_are_harmless_change_no_number(tmp_path: Path) -> None:
    """Every one of the list, with values as they are published."""

    def change(settings: dict[str, Any], _: object) -> None:
        for section, part in (
            (settings, MODEL), (settings["encoder"], ENCODER),
            (settings["preprocessor"], FEATURES), (settings["decoder"], HEAD),
        ):  # fmt: skip
            section.update({name: section.get(name, {}) for name in part.harmless.split()})

    files = [
        import_checkpoint("nemo", checkpoint(tmp_path / f"{i}.nemo", each)).file
        for i, each in enumerate((None, change))
    ]
    assert files[0].config == files[1].config
    ours, theirs = (each.model.state_dict() for each in files)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_missing_size_has_the_default_of_nemo(tmp_path: Path) -> None:
    sizes = {"n_heads": 4, "ff_expansion_factor": 4, "conv_kernel_size": 31}

    def change(settings: dict[str, Any], weights: dict[str, torch.Tensor]) -> None:
        settings["encoder"].update(sizes, feat_in=64)
        settings["preprocessor"]["features"] = 64
        layer, channels = "encoder.layers.0", 4
        weights["encoder.pre_encode.out.weight"] = torch.ones(16, channels * 9)
        weights[f"{layer}.conv.depthwise_conv.weight"] = torch.ones(16, 1, 31)
        weights |= {f"{layer}.self_attn.pos_bias_{x}": torch.ones(4, 4) for x in "uv"}

    def without(settings: dict[str, Any], weights: dict[str, torch.Tensor]) -> None:
        change(settings, weights)
        del settings["preprocessor"]["features"]
        for name in sizes:
            del settings["encoder"][name]

    written, missing = (
        import_checkpoint("nemo", checkpoint(tmp_path / f"{each.__name__}.nemo", each)).file
        for each in (change, without)
    )
    assert written.config == missing.config
    assert missing.config.model.num_heads == 4


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, told = REFUSED[name]
    path = checkpoint(tmp_path / "m.nemo", change)
    options = ("--output", tmp_path / "m.safetensors", "--licence", "MIT")
    assert run("import", "nemo", path, *options) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.startswith(f"asrkit import: {path}")
    assert len(error) < len(str(path)) + 500
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "m.safetensors").exists()


def test_weights_that_are_not_finite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = checkpoint(
        tmp_path / "m.nemo",
        lambda _, weights: weights["decoder.decoder_layers.0.bias"].fill_(torch.inf),
    )
    options = ("--output", tmp_path / "m.safetensors", "--licence", "MIT")
    assert run("import", "nemo", path, *options) == 2
    assert "head.bias holds NaN or infinity" in capsys.readouterr().err


def test_what_nemo_leaves_open(tmp_path: Path) -> None:
    """Biases that are not there, one context, and the input as it is."""

    def change(settings: dict[str, Any], weights: dict[str, torch.Tensor]) -> None:
        settings["encoder"] |= {"att_context_size": [6, 3], "conv_context_size": [8, 0]}
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


@pytest.mark.parametrize("kind", ["striding", "dw_striding"])
def test_a_conformer_of_40_ms(kind: str, tmp_path: Path) -> None:
    """Cache-aware Conformers have an encoder frame for every 4 feature frames."""

    def change(settings: dict[str, Any], weights: dict[str, torch.Tensor]) -> None:
        settings["encoder"] |= {"subsampling": kind, "subsampling_factor": 4}
        names = [each for each in weights if "pre_encode.conv.5" in each or "conv.6" in each]
        names += [each for each in weights if kind == "striding" and "pre_encode.conv.3" in each]
        for name in names:
            del weights[name]
        if kind == "striding":
            weights["encoder.pre_encode.conv.2.weight"] = torch.randn(4, 4, 3, 3)
        weights["encoder.pre_encode.out.weight"] = torch.randn(16, 4 * 21)

    file = import_checkpoint("nemo", checkpoint(tmp_path / "m.nemo", change)).file
    assert (file.model.encoder.rate.frame_ms, file.model.encoder.rate.lead_frames) == (40, 3)


def test_mutated_checkpoints(nemo: Path, tmp_path: Path) -> None:
    """Bytes changed, left out, doubled: a model as it was or another, or an error of one line."""
    whole, path = nemo.read_bytes(), tmp_path / "x.nemo"
    refused: list[str] = []
    for seed in range(300):
        draw, data = random.Random(seed), bytearray(whole)
        for _ in range(draw.choice([1, 1, 3, 30])):
            place = draw.choice([draw.randrange(len(data)), draw.randrange(4096)])
            kind = draw.randrange(4)
            if kind == 0:
                data[place] = draw.randrange(256)
            elif kind == 1:
                data[place] ^= 1 << draw.randrange(8)
            elif kind == 2:
                del data[place : place + draw.choice([1, 512, 5000])]
            else:
                data[place:place] = data[place : place + draw.choice([1, 512, 5000])]
        path.write_bytes(data)
        try:
            import_checkpoint("nemo", path)
        except CheckpointError as error:
            refused.append(str(error))
    assert len(refused) > 150
    assert all(len(told) < 1000 and told.isprintable() for told in refused)
    import_checkpoint("nemo", nemo)  # control


def test_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.nemo").write_text("hello")
    (tmp_path / "empty.nemo").write_bytes(b"")
    for name in ("missing.nemo", "text.nemo", "empty.nemo", "."):
        options = ("--output", tmp_path / "m.safetensors", "--licence", "MIT")
        assert run("import", "nemo", tmp_path / name, *options) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
