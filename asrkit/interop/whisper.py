"""Whisper's encoder, the start of a training, in the files of three toolkits."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.nn import functional

from asrkit.errors import reason, shown
from asrkit.interop.checkpoint import CheckpointError, read_bytes, read_saved, require_tensors
from asrkit.interop.ctranslate2 import read_variables
from asrkit.interop.imported import Imported, assemble
from asrkit.model.positions import SinusoidalPosition
from asrkit.text import CharTokenizer

LONGEST = 1500  # frames of 20 ms: the positions that Whisper was trained on
FRAME_MS = 40  # of a start: half the cost of Whisper's 20, and learned faster
FLOOR = -6.5  # log10 of an energy; see `WhisperFbank`
DECODER = re.compile(r"decoder[./]|proj_out\.")
POSITIONS = "positions"

# Names of modules by asrkit's; `{}` is the number of the layer.
OPENAI = {
    "subsampling.conv1": "encoder.conv1",
    "subsampling.conv2": "encoder.conv2",
    "after_norm": "encoder.ln_post",
    POSITIONS: "encoder.positional_embedding",
    "attention_norm": "encoder.blocks.{}.attn_ln",
    "query": "encoder.blocks.{}.attn.query",
    "key": "encoder.blocks.{}.attn.key",
    "value": "encoder.blocks.{}.attn.value",
    "attention.out": "encoder.blocks.{}.attn.out",
    "ffn.norm": "encoder.blocks.{}.mlp_ln",
    "ffn.expand": "encoder.blocks.{}.mlp.0",
    "ffn.project": "encoder.blocks.{}.mlp.2",
}
TRANSFORMERS = {
    "subsampling.conv1": "encoder.conv1",
    "subsampling.conv2": "encoder.conv2",
    "after_norm": "encoder.layer_norm",
    POSITIONS: "encoder.embed_positions.weight",
    "attention_norm": "encoder.layers.{}.self_attn_layer_norm",
    "query": "encoder.layers.{}.self_attn.q_proj",
    "key": "encoder.layers.{}.self_attn.k_proj",
    "value": "encoder.layers.{}.self_attn.v_proj",
    "attention.out": "encoder.layers.{}.self_attn.out_proj",
    "ffn.norm": "encoder.layers.{}.final_layer_norm",
    "ffn.expand": "encoder.layers.{}.fc1",
    "ffn.project": "encoder.layers.{}.fc2",
}
CTRANSLATE2 = {
    "subsampling.conv1": "encoder/conv1",
    "subsampling.conv2": "encoder/conv2",
    "after_norm": "encoder/layer_norm",
    POSITIONS: "encoder/position_encodings/encodings",
    "attention_norm": "encoder/layer_{}/self_attention/layer_norm",
    "qkv": "encoder/layer_{}/self_attention/linear_0",
    "attention.out": "encoder/layer_{}/self_attention/linear_1",
    "ffn.norm": "encoder/layer_{}/ffn/layer_norm",
    "ffn.expand": "encoder/layer_{}/ffn/linear_0",
    "ffn.project": "encoder/layer_{}/ffn/linear_1",
}


class Source(NamedTuple):
    """A checkpoint's weights and the names of its modules."""

    name: str  # the toolkit
    weights: dict[str, Tensor]
    num_heads: int
    names: Mapping[str, str]
    read: tuple[Path, ...]


def read_whisper(path: Path, frame_ms: int = FRAME_MS) -> Imported:
    """Read the encoder of a Whisper model; the decoder is left out.

    With frames of 40 or 80 ms, the start's frame is the last one of 20 ms in it.
    """
    stride = frame_ms // 10
    source = read_source(path)
    decoder = {name for name in source.weights if DECODER.match(name)}
    shared = {source.weights[name].data_ptr(): source.weights[name].numel() for name in decoder}
    left_out = sum(shared.values())
    rest = {name: each for name, each in source.weights.items() if name not in decoder}
    if not any(name.startswith("encoder") for name in rest):
        raise CheckpointError("has no encoder of Whisper")
    found = renamed(rest, source.names)
    settings = settings_of(found, source.num_heads, stride)
    require_sinusoids(found.pop(POSITIONS), settings["model"]["dim"])
    if rest:
        raise CheckpointError(f"the weight {shown(min(rest))} is unknown and cannot be imported")
    taps = found["subsampling.conv2.weight"]
    found["subsampling.conv2.weight"] = functional.pad(taps, (stride - 2, 0))
    weights = {f"encoder.{name}": each for name, each in found.items()}
    mels, dim = settings["model"]["num_mels"], settings["model"]["dim"]
    weights |= {"encoder.mean": torch.zeros(mels), "encoder.scale": torch.ones(mels)}
    weights["encoder.position.scale"] = torch.ones(())
    tokenizer = CharTokenizer([" "])  # a training brings its own labels
    size = tokenizer.vocab_size
    weights |= {"head.weight": torch.zeros(size, dim), "head.bias": torch.zeros(size)}
    file = assemble(settings, tokenizer, weights)
    parts = {"decoder": left_out} if left_out else {}
    return Imported(file, source.read, source.name, None, parts, is_start=True)


def read_source(path: Path) -> Source:
    """Read a checkpoint by the form of its file, or of the file in its folder."""
    if path.is_dir():
        known = [path / name for name in ("model.safetensors", "model.bin")]
        path = next((each for each in known if each.is_file()), path)
    if path.is_dir() or not path.is_file():
        raise CheckpointError(
            "must be OpenAI's .pt file, or a folder with model.safetensors (transformers) or "
            "model.bin (CTranslate2)"
        )
    if path.suffix == ".safetensors":
        return read_transformers(path)
    with path.open("rb") as file:
        if path.suffix == ".bin":
            weights = read_variables(file, path.name)
            heads = whole(weights.pop("encoder/num_heads", torch.zeros(())).item())
            weights = {name: each for name, each in weights.items() if each.is_floating_point()}
            return Source("CTranslate2", weights, heads, CTRANSLATE2, (path,))
        values = read_saved(file, path.name)
        parts = values if isinstance(values, dict) else {}
        dims = parts.get("dims")
        if not isinstance(dims, dict):
            raise CheckpointError(f"{path.name} has no dims of a Whisper model")
        tensors = parts.get("model_state_dict")
        weights = require_tensors(tensors, path.name, path.stat().st_size)
        return Source("OpenAI", weights, whole(dims.get("n_audio_head")), OPENAI, (path,))


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
    return Source("transformers", weights, whole(heads), TRANSFORMERS, (path, settings))


def whole(value: object) -> int:
    """Return a count, or 0 for anything else."""
    return value if isinstance(value, int) and 0 < value < 1000 else 0


def renamed(rest: dict[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    """Remove the encoder's weights from `rest`, and return them by asrkit's names."""
    found: dict[str, Tensor] = {}

    def move(own: str, name: str) -> None:
        for end, other in (("weight", "gamma"), ("bias", "beta")):
            stored = [each for each in (f"{name}.{end}", f"{name}/{end}", f"{name}/{other}")
                      if each in rest]  # fmt: skip
            if not stored:
                raise CheckpointError(f"the weight is missing: {shown(f'{name}.{end}')}")
            found[f"{own}.{end}"] = rest.pop(stored[0])

    for own in ("subsampling.conv1", "subsampling.conv2", "after_norm"):
        move(own, names[own])
    if names[POSITIONS] not in rest:
        raise CheckpointError(f"the weight is missing: {shown(names[POSITIONS])}")
    found[POSITIONS] = rest.pop(names[POSITIONS])
    inside = [own for own in names if names[own].count("{}")]
    layer = 0
    while any(name.startswith(layer_prefix(names, layer)) for name in rest):
        for own in inside:
            if own == "key":  # Whisper's keys have no bias
                rest.setdefault(
                    f"{names[own].format(layer)}.bias", torch.zeros_like(found["after_norm.bias"])
                )
            move(f"layers.{layer}.{own}", names[own].format(layer))
        join(found, f"layers.{layer}.")
        layer += 1
    return found


def layer_prefix(names: Mapping[str, str], layer: int) -> str:
    """Return the beginning of the names of a layer's weights."""
    name = names["attention_norm"]
    start = name.index("{}")
    return f"{name[:start]}{layer}{name[start + 2]}"


def join(found: dict[str, Tensor], layer: str) -> None:
    """Join the query's, key's and value's weights of a layer."""
    parts = [part for part in ("qkv", "query", "key", "value") if f"{layer}{part}.weight" in found]
    for end in ("weight", "bias"):
        joined = torch.cat([found.pop(f"{layer}{part}.{end}") for part in parts])
        found[f"{layer}attention.qkv.{end}"] = joined


def settings_of(found: Mapping[str, Tensor], num_heads: int, stride: int) -> dict[str, Any]:
    """Return the sections of the configuration, by the shapes of the weights.

    Args:
        stride: feature frames of an encoder frame.
    """
    conv, inner = found["subsampling.conv1.weight"], found.get("layers.0.ffn.expand.bias")
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
