"""Whisper's encoder equals a reference in plain torch, in two containers; then it streams."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import safetensors.torch
import torch
from torch import Tensor
from torch.nn import functional

from asrkit.audio import build_frontend, features
from asrkit.interop import import_checkpoint
from asrkit.interop.checkpoint import CheckpointError
from asrkit.interop.whisper import LONGEST, OPENAI, TRANSFORMERS, Layout
from asrkit.model import FULL_CONTEXT
from asrkit.model_file import load_model, save_model
from tests.conftest import speech, write_wav
from tests.running import run

MELS, DIM, HEADS, LAYERS = 8, 16, 2, 2


def whisper_positions(frames: int) -> Tensor:
    rates = torch.exp(-math.log(10000) / (DIM // 2 - 1) * torch.arange(DIM // 2).double())
    angles = torch.arange(frames)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def openai_weights(mels: int = MELS) -> dict[str, Tensor]:
    """Random weights of an encoder and of a part of a decoder, by OpenAI's names."""
    torch.manual_seed(0)
    shapes = {"encoder.conv1": (DIM, mels, 3), "encoder.conv2": (DIM, DIM, 3)}
    norms = ["encoder.ln_post"]
    for i in range(LAYERS):
        block = f"encoder.blocks.{i}"
        norms += [f"{block}.attn_ln", f"{block}.mlp_ln"]
        shapes |= {f"{block}.attn.{each}": (DIM, DIM) for each in ("query", "key", "value", "out")}
        shapes |= {f"{block}.mlp.0": (4 * DIM, DIM), f"{block}.mlp.2": (DIM, 4 * DIM)}
    weights = {}
    for name, shape in shapes.items():
        weights[f"{name}.weight"] = torch.randn(shape) / math.sqrt(math.prod(shape[1:]))
        if not name.endswith("key"):
            weights[f"{name}.bias"] = torch.randn(shape[0]) * 0.1
    for name in norms:
        weights[f"{name}.weight"] = 1.0 + 0.2 * torch.randn(DIM)
        weights[f"{name}.bias"] = 0.2 * torch.randn(DIM)
    weights["encoder.positional_embedding"] = whisper_positions(LONGEST).float()
    weights["decoder.token_embedding.weight"] = torch.randn(20, DIM)
    return weights


def reference(weights: dict[str, Tensor], feats: Tensor) -> Tensor:
    """Whisper's encoder (B, T, F) -> (B, T/2, D), in float64."""
    w = {name: each.double() for name, each in weights.items()}

    def linear(x: Tensor, name: str) -> Tensor:
        return functional.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))

    def norm(x: Tensor, name: str) -> Tensor:
        return functional.layer_norm(x, (DIM,), w[f"{name}.weight"], w[f"{name}.bias"])

    x = feats.transpose(1, 2)
    for name, stride in (("encoder.conv1", 1), ("encoder.conv2", 2)):
        convolved = functional.conv1d(
            x, w[f"{name}.weight"], w[f"{name}.bias"], stride=stride, padding=1
        )
        x = functional.gelu(convolved)
    x = x.transpose(1, 2)
    x = x + whisper_positions(x.size(1))
    for i in range(LAYERS):
        block = f"encoder.blocks.{i}"
        y = norm(x, f"{block}.attn_ln")
        q, k, v = (
            linear(y, f"{block}.attn.{each}").unflatten(2, (HEADS, -1)).transpose(1, 2)
            for each in ("query", "key", "value")
        )
        y = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + linear(y, f"{block}.attn.out")
        hidden = functional.gelu(linear(norm(x, f"{block}.mlp_ln"), f"{block}.mlp.0"))
        x = x + linear(hidden, f"{block}.mlp.2")
    return norm(x, "encoder.ln_post")


def of_openai(folder: Path, weights: dict[str, Tensor], heads: object = HEADS) -> Path:
    torch.save({"dims": {"n_audio_head": heads}, "model_state_dict": weights}, folder / "tiny.pt")
    return folder / "tiny.pt"


def names(layout: Layout) -> list[str | tuple[str, ...]]:
    """The names of the encoder's modules, in the same order for each toolkit."""
    layers = [
        tuple(f"{layout.layer.format(i)}.{each}" for each in part)
        if isinstance(part, tuple) else f"{layout.layer.format(i)}.{part}"
        for i in range(LAYERS) for part in layout.parts
    ]  # fmt: skip
    return ["conv1", "conv2", layout.after_norm, layout.positions, *layers]


def renamed(weights: dict[str, Tensor], layout: Layout) -> dict[str, Tensor]:
    """Rename OpenAI's weights as another toolkit does, but for those that it joins."""
    found = {}
    for stems, others in zip(names(OPENAI), names(layout), strict=True):
        if type(stems) is type(others):
            pairs = [(stems, others)] if isinstance(stems, str) else zip(stems, others, strict=True)
            for stem, other in pairs:
                found |= {
                    f"encoder.{other}{name.removeprefix(f'encoder.{stem}')}": each
                    for name, each in weights.items()
                    if f"{name}.".startswith(f"encoder.{stem}.")
                }
    return found


def of_transformers(folder: Path, weights: dict[str, Tensor]) -> Path:
    tensors = {f"model.{name}": each for name, each in renamed(weights, TRANSFORMERS).items()}
    tensors["model.decoder.embed_tokens.weight"] = weights["decoder.token_embedding.weight"]
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"encoder_attention_heads": HEADS}))
    return folder


CONTAINERS: list[Callable[[Path, dict[str, Tensor]], Path]] = [of_openai, of_transformers]


@pytest.mark.parametrize("write", CONTAINERS)
@torch.no_grad()
def test_full_context_equals_whispers_encoder(
    write: Callable[[Path, dict[str, Tensor]], Path], tmp_path: Path
) -> None:
    weights = openai_weights()
    imported = import_checkpoint("whisper", write(tmp_path, weights), frame_ms=20)
    encoder = imported.file.model.double().encoder
    feats = torch.randn(2, 64, MELS, dtype=torch.float64)
    padded = functional.pad(feats, (0, 0, 0, 1))  # as Whisper's convolutions pad the end
    whole = encoder(padded, torch.tensor([65, 65]), encoder.init_state(2, 0), FULL_CONTEXT)
    expected = reference(weights, feats)
    assert (whole.frames - expected).abs().max() < 1e-9
    assert imported.left_out == {"decoder": 20 * DIM}
    # A control: the attention matters, and so does the order of its heads.
    query = "encoder.blocks.1.attn.query.weight"
    weights[query] = weights[query].flip(0)
    assert (whole.frames - reference(weights, feats)).abs().max() > 1e-3


@torch.no_grad()
def test_a_longer_frame_begins_as_whispers_last(tmp_path: Path) -> None:
    """Before the layers, a frame of 40 or 80 ms is the last one of 20 ms in it, and so is its
    position."""
    path, feats = of_openai(tmp_path, openai_weights()), torch.randn(1, 97, MELS)
    encoders = [
        import_checkpoint("whisper", path, frame_ms=ms).file.model.encoder for ms in (20, 40, 80)
    ]
    stems, places = [], []
    for encoder in encoders:
        state, real = encoder.init_state(1, 0), torch.ones(1, 97, dtype=torch.bool)
        stems.append(encoder.subsampling(feats, real, state.feats, state.hidden)[0])
        zeros, start = torch.zeros(1, 2000, DIM), torch.zeros(1, dtype=torch.int64)
        places.append(encoder.position(zeros, start, encoder.position.table(zeros)))
    for longer, stem, position in zip((2, 4), stems[1:], places[1:], strict=True):
        assert (stem - stems[0][:, longer - 1 :: longer]).abs().max() < 1e-5
        assert (stem - stems[0][:, ::longer]).abs().max() > 1e-3  # control: the first one
        assert (position[:, :500] - places[0][:, ::longer][:, :500]).abs().max() < 1e-5


@pytest.mark.parametrize("frame_ms", [20, 40, 80])
@pytest.mark.parametrize("tampered", [None, "feats", "hidden"])
@torch.no_grad()
def test_streaming_equals_offline(tampered: str | None, frame_ms: int, tmp_path: Path) -> None:
    """In chunks of 3 frames with 7 before and 2 after them; controls lose a past of the stem."""
    path, chunk, right, stride = of_openai(tmp_path, openai_weights()), 3, 2, frame_ms // 10
    encoder = import_checkpoint("whisper", path, frame_ms=frame_ms).file.model.encoder.double()
    torch.nn.init.normal_(encoder.subsampling.conv2.weight)  # else taps that reach back are zero
    frames = 41 * stride + 1
    feats, length = torch.randn(1, frames, MELS, dtype=torch.float64), torch.tensor([frames])
    padded = functional.pad(feats, (0, 0, 0, stride * right))
    whole = encoder(padded, length, encoder.init_state(1, 7), chunk, right).frames
    state, parts = encoder.init_state(1, 7), []
    for first in range(0, frames - 1, stride * chunk):
        part = padded[:, first : first + stride * (chunk + right) + 1]
        if tampered:
            state = state._replace(**{tampered: torch.zeros_like(getattr(state, tampered))})
        output = encoder(part, (length - first).clamp(max=part.size(1)), state, chunk, right)
        state = output.state
        parts.append(output.frames[:, :chunk])
    difference = (torch.cat(parts, dim=1)[:, : whole.size(1)] - whole).abs().max()
    assert difference > 1e-3 if tampered else difference < 1e-9


def test_the_import_is_a_start_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = of_openai(tmp_path, openai_weights())
    output = tmp_path / "start.safetensors"
    assert run("import", "whisper", path, "--output", output, "--licence", "MIT") == 0
    assert "train it before you stream" in capsys.readouterr().out
    assert load_model(output).training["imported"]["start"]
    training = f"training.start_from={output} data.train=… data.dev=…"
    for command in (
        ["decode", tmp_path / "a.wav", "--model", output],
        ["export", "--format", "onnx", "--model", output],
        ["average", output, output, "--output", tmp_path / "mean.safetensors"],
        ["push", output, "me/x", "--dry-run"],
    ):
        assert run(*command) == 2
        refusal = "is a start, not a recogniser: train it with asrkit train --config whisper "
        assert refusal + training in capsys.readouterr().err


POSITIONS = "encoder.positional_embedding"
DAMAGES: dict[str, tuple[dict[str, Tensor], str]] = {
    "encoder": ({}, "has no encoder of Whisper"),
    "encoder.blocks.1.mlp.0": ({}, "the weight 'encoder.blocks.1.mlp.0.weight' is missing"),
    "random": ({POSITIONS: torch.randn(LONGEST, DIM)}, "not Whisper's sinusoids"),
    "not numbers": ({POSITIONS: torch.full((LONGEST, DIM), math.nan)}, "not Whisper's sinusoids"),
    # Computed, they would have 4 TB.
    "empty positions": ({POSITIONS: torch.zeros(0, 10**12)}, "not Whisper's sinusoids"),
    "empty convolution": (
        {"encoder.conv1.weight": torch.zeros(0, 10**12, 3)}, "is not an encoder of Whisper"
    ),
    "more": ({"encoder.more": torch.zeros(2)}, "'encoder.more' is unknown"),
    "complex": (
        {"encoder.ln_post.bias": torch.zeros(DIM) + 0j},
        "must be floating point, got torch.complex64",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGES)
def test_refusals(kind: str, tmp_path: Path) -> None:
    change, message = DAMAGES[kind]
    left = {name: each for name, each in openai_weights().items() if not name.startswith(kind)}
    with pytest.raises(CheckpointError, match=message):
        import_checkpoint("whisper", of_openai(tmp_path, left | change))
    with pytest.raises(CheckpointError, match=r"must be OpenAI's \.pt file, or a folder with"):
        import_checkpoint("whisper", tmp_path)


@pytest.mark.parametrize("heads", [-2, 0, math.inf, None, 10**9])
def test_refused_numbers_of_heads(heads: object, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not an encoder of Whisper"):
        import_checkpoint("whisper", of_openai(tmp_path, openai_weights(), heads))


@torch.no_grad()
def test_the_features_are_whispers(tmp_path: Path) -> None:
    """With the recording's own floor; a control has the floor of streams."""
    samples = torch.from_numpy(speech(2.0))
    window = torch.hann_window(400)
    frontend = build_frontend({"kind": "whisper", "floor": -10.0}, 80)
    whole = functional.pad(samples, (0, 16000))
    spectrum = torch.stft(whole, 400, 160, window=window, return_complex=True)[:, :200]
    mels = (spectrum.abs() ** 2).T @ torch.from_numpy(frontend.filters)
    expected = (mels.clamp(min=1e-10).log10() + 4.0) / 4.0
    found, lengths = features(frontend, samples[None].numpy(), np.array([32000]))
    assert lengths.tolist() == [200]
    assert abs(found[0] - expected.numpy()).max() < 1e-4
    floored = build_frontend({"kind": "whisper", "floor": -1.0}, 80)
    other, _ = features(floored, samples[None].numpy(), lengths * 160)
    assert abs(other[0] - expected.numpy()).max() > 0.1


def test_an_export_from_samples(tmp_path: Path) -> None:
    """The export is compared with eager. ONNX's DFT has errors of 1e-4 at 400 samples."""
    file = import_checkpoint("whisper", of_openai(tmp_path, openai_weights())).file
    save_model(tmp_path / "m.safetensors", file)
    wav = write_wav(tmp_path / "a.wav", speech(3.0))
    options = ("--model", tmp_path / "m.safetensors", "--audio", wav, "--chunk-ms", "320")
    graph = tmp_path / "m.onnx"
    assert run("export", *options, "--format", "onnx", "--what", "model", "--output", graph) == 0
    kinds = {node.op_type for node in onnx.load(graph).graph.node}
    assert "MatMul" in kinds
    assert "DFT" not in kinds
