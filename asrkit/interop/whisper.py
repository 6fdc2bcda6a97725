"""Whisper's encoder, the start of a training, in the files of two toolkits."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.nn import functional

from asrkit.errors import reason
from asrkit.interop.checkpoint import CheckpointError, read_bytes, read_saved, require_tensors
from asrkit.interop.imported import Imported, assemble
from asrkit.interop.weights import Weights
from asrkit.model.positions import SinusoidalPosition
from asrkit.text import CharTokenizer

LONGEST = 1500  # frames of 20 ms: the positions that Whisper was trained on
FRAME_MS = 40  # of a start: half the cost of Whisper's 20, and learned faster
FLOOR = -6.5  # log10 of an energy; see `WhisperFbank`
DECODER = {"decoder.": "decoder", "proj_out.": "decoder"}
STEM = {"conv1": "conv1", "conv2": "conv2"}


PARTS = (  # of a layer
    "attention_norm", "attention.qkv", "attention.out", "ffn.norm", "ffn.expand", "ffn.project",
)  # fmt: skip


class Layout(NamedTuple):
    """The names of a toolkit for the parts of Whisper's encoder."""

    toolkit: str
    layer: str  # `{}` is the number of the layer
    positions: str
    after_norm: str
    parts: tuple[str | tuple[str, ...], ...]  # names of PARTS


OPENAI = Layout(
    "OpenAI", "blocks.{}", "positional_embedding", "ln_post",
    ("attn_ln", ("attn.query", "attn.key", "attn.value"), "attn.out", "mlp_ln", "mlp.0", "mlp.2"),
)  # fmt: skip
TRANSFORMERS = Layout(
    "transformers", "layers.{}", "embed_positions.weight", "layer_norm",
    ("self_attn_layer_norm", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
     "self_attn.out_proj", "final_layer_norm", "fc1", "fc2"),
)  # fmt: skip


class Source(NamedTuple):
    """The weights of a checkpoint, and the files that were read."""

    layout: Layout
    weights: Weights
    num_heads: int
    read: tuple[Path, ...]


def read_whisper(path: Path, frame_ms: int = FRAME_MS) -> Imported:
    """Read the encoder of a Whisper model; the decoder is left out.

    With frames of 40 or 80 ms, the start's frame is the last one of 20 ms in it.
    """
    stride = frame_ms // 10
    source = read_source(path)
    if not any(name.startswith("encoder.") for name in source.weights):
        raise CheckpointError("has no encoder of Whisper")
    positions = source.weights.take(f"encoder.{source.layout.positions}")
    weights = encoder_weights(source.weights, source.layout)
    settings = settings_of(weights, source.num_heads, stride)
    mels, dim = settings["model"]["num_mels"], settings["model"]["dim"]
    require_sinusoids(positions, dim)
    left_out = source.weights.left_out(DECODER)
    taps = weights["encoder.subsampling.conv2.weight"]
    weights["encoder.subsampling.conv2.weight"] = functional.pad(taps, (stride - 2, 0))
    weights |= {"encoder.mean": torch.zeros(mels), "encoder.scale": torch.ones(mels)}
    weights["encoder.position.scale"] = torch.ones(())
    tokenizer = CharTokenizer([" "])  # a training brings its own labels
    size = tokenizer.vocab_size
    weights |= {"head.weight": torch.zeros(size, dim), "head.bias": torch.zeros(size)}
    file = assemble(settings, tokenizer, weights)
    return Imported(file, source.read, source.layout.toolkit, left_out, is_start=True)


def read_source(path: Path) -> Source:
    """Read a checkpoint by the form of its file, or of the file in its folder."""
    if path.is_dir():
        path /= "model.safetensors"
    if not path.is_file():
        raise CheckpointError(
            "must be OpenAI's .pt file, or a folder with model.safetensors (transformers)"
        )
    if path.suffix == ".safetensors":
        return read_transformers(path)
    with path.open("rb") as file:
        values = read_saved(file, path.name)
        parts = values if isinstance(values, dict) else {}
        dims = parts.get("dims")
        if not isinstance(dims, dict):
            raise CheckpointError(f"{path.name} has no dims of a Whisper model")
        tensors = parts.get("model_state_dict")
        weights = require_tensors(tensors, path.name, path.stat().st_size)
        return Source(OPENAI, Weights(weights), whole(dims.get("n_audio_head")), (path,))


def read_transformers(path: Path) -> Source:
    """Read model.safetensors and the config.json beside it."""
    settings = path.with_name("config.json")
    try:
        with settings.open("rb") as file:
            heads = json.loads(read_bytes(file, settings.name))["encoder_attention_heads"]
        with safe_open(path, framework="pt") as stored:
            weights = {
                name.removeprefix("model."): stored.get_tensor(name)
                for name in stored.keys()  # noqa: SIM118
            }
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"not a Whisper model of transformers: {reason(error)}") from None
    return Source(TRANSFORMERS, Weights(weights), whole(heads), (path, settings))


def whole(value: object) -> int:
    """Return a count, or 0 for anything else."""
    return value if isinstance(value, int) and 0 < value < 1000 else 0


def encoder_weights(weights: Weights, layout: Layout) -> dict[str, Tensor]:
    """Remove the encoder's weights, and return them by asrkit's names."""
    found = weights.take_modules("encoder.subsampling", "encoder", STEM)
    found |= weights.take_modules("encoder", "encoder", {"after_norm": layout.after_norm})
    names, layer = dict(zip(PARTS, layout.parts, strict=True)), 0
    while any(key.startswith(f"encoder.{layout.layer.format(layer)}.") for key in weights):
        name, key = f"encoder.{layout.layer.format(layer)}", names["attention.qkv"][1]
        zeros = torch.zeros_like(found["encoder.after_norm.bias"])
        weights.setdefault(f"{name}.{key}.bias", zeros)  # Whisper's keys have none
        found |= weights.take_modules(f"encoder.layers.{layer}", name, names)
        layer += 1
    return found


def settings_of(found: Mapping[str, Tensor], num_heads: int, stride: int) -> dict[str, Any]:
    """Return the sections of the configuration, by the shapes of the weights.

    Args:
        stride: feature frames of an encoder frame.
    """
    conv = found["encoder.subsampling.conv1.weight"]
    inner = found.get("encoder.layers.0.ffn.expand.bias")
    if conv.dim() != 3 or not conv.numel() or inner is None or not num_heads:
        raise CheckpointError("is not an encoder of Whisper")
    layers = sum(name.endswith("ffn.expand.bias") for name in found)
    return {
        "model": {
            "num_mels": conv.size(1),
            "dim": conv.size(0),
            "num_heads": num_heads,
            "num_layers": layers,
            "ffn_dim": inner.numel(),
            "layer": "transformer",
            "frontend": {"kind": "whisper", "floor": FLOOR},
            "subsampling": {"kind": "whisper", "stride": stride},
            "position": {
                "kind": "sinusoidal",
                "layout": "tensor2tensor",
                "embedding_scale": False,
                "period": LONGEST * 2 // stride,
                "stride": stride // 2,
            },
            "after_norm": True,
        },
        "context": {
            "chunk_sizes": [ms // (10 * stride) for ms in (160, 320, 640, 1040)],
            "left_contexts": [ms // (10 * stride) for ms in (2560, 5120)],
            "right_contexts": [0, 160 // (10 * stride)],
            "chunk_size": 320 // (10 * stride),
            "left_context": 5120 // (10 * stride),
            "right_context": 160 // (10 * stride),
        },
        "text": {"tokenizer": "characters"},
    }


def require_sinusoids(table: Tensor, dim: int) -> None:
    """Raise CheckpointError unless the positions are the sinusoids that asrkit computes."""
    position = SinusoidalPosition(dim, layout="tensor2tensor", embedding_scale=False)
    is_equal = table.shape == (LONGEST, dim)
    if is_equal:
        zeros, start = torch.zeros(1, LONGEST, dim), torch.zeros(1, dtype=torch.int64)
        difference = table - position(zeros, start, position.table(zeros))[0]
        is_equal = bool(difference.abs().max() <= 1e-2)
    if not is_equal:
        raise CheckpointError("its positions are not Whisper's sinusoids")
