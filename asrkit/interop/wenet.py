"""WeNet's model folders: train.yaml, final.pt, units.txt and, in some, global_cmvn and a
sentencepiece model."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import torch
from torch import Tensor

from asrkit.errors import reason, shown
from asrkit.interop.checkpoint import (
    CheckpointError,
    read_bytes,
    read_settings,
    read_text,
    read_weights,
)
from asrkit.interop.imported import Imported, assemble, case_of, fold_norm
from asrkit.interop.wenet_settings import EncoderPart, Settings, parse_settings
from asrkit.text import CharTokenizer, PieceTokenizer, Tokenizer

SETTINGS, WEIGHTS = "train.yaml", "final.pt"
UNITS = ("units.txt", "words.txt")  # words.txt in older folders
STATISTICS = "global_cmvn"
MEAN, SCALE = "encoder.global_cmvn.mean", "encoder.global_cmvn.istd"
LEAST_VARIANCE = 1e-20
POSITIONS = {"rel_pos": "absolute_keys", "abs_pos": "sinusoidal", "no_pos": "none"}
DECODER = "decoder."
UNUSED = re.compile(  # computed positions, counts of batches, an unused layer of older models
    r"encoder\.embed\.pos_enc\.pe|encoder\.encoders\.\d+\."
    r"(conv_module\.norm\.num_batches_tracked|concat_linear\.(weight|bias))"
)

SUBSAMPLINGS = {"conv2d": "conv4_valid", "conv2d6": "conv6_valid", "conv2d8": "conv8_valid"}
LAYER = {  # WeNet's names of modules, by asrkit's
    "ffn1.norm": "norm_ff_macaron",
    "ffn1.expand": "feed_forward_macaron.w_1",
    "ffn1.project": "feed_forward_macaron.w_2",
    "attention_norm": "norm_mha",
    "attention.out": "self_attn.linear_out",
    "convolution.norm": "norm_conv",
    "convolution.expand": "conv_module.pointwise_conv1",
    "convolution.depthwise": "conv_module.depthwise_conv",
    "convolution.depthwise_norm": "conv_module.norm",
    "convolution.project": "conv_module.pointwise_conv2",
    "ffn2.norm": "norm_ff",
    "ffn2.expand": "feed_forward.w_1",
    "ffn2.project": "feed_forward.w_2",
    "norm": "norm_final",
}


class Folder:
    """The files of a folder, by name, and a list of the files that were read."""

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise CheckpointError(f"must be a folder with {SETTINGS}, {WEIGHTS} and {UNITS[0]}")
        self.path = path
        self.read: list[Path] = []

    def find(self, *names: str | None) -> Path:
        """Return the first of these files that exists; only the last part of a path is used."""
        known = list(dict.fromkeys(PurePath(name).name for name in names if name))
        for name in known:
            if (self.path / name).is_file():
                self.read.append(self.path / name)
                return self.path / name
        raise CheckpointError(f"the folder has no file {shown(PurePath(' or '.join(known)))}")

    def content(self, *names: str | None) -> bytes:
        """Read a small file, found as in `find`."""
        path = self.find(*names)
        with path.open("rb") as file:
            return read_bytes(file, path.name)


def read_wenet(path: Path) -> Imported:
    """Read the folder of a U2 or U2++ Conformer: encoder and CTC, without the attention decoder."""
    folder = Folder(path)
    settings = parse_settings(read_settings(folder.content(SETTINGS), SETTINGS), SETTINGS)
    units = read_units(folder.content(settings.tokenizer_conf.symbol_table_path, *UNITS))
    tokenizer, kind = read_tokenizer(folder, settings, units)
    with folder.find(WEIGHTS).open("rb") as file:
        weights = read_weights(file, WEIGHTS)
    decoder = sum(t.numel() for name, t in weights.items() if name.startswith(DECODER))
    used = {
        name: tensor
        for name, tensor in weights.items()
        if not name.startswith(DECODER) and not UNUSED.fullmatch(name)
    }
    if MEAN not in used:
        used |= read_statistics(folder, settings)
    sections = {
        "model": model_settings(settings),
        "text": {"tokenizer": kind, "case": case_of(units)},
        "context": context_settings(settings.encoder_conf),
    }
    file_ = assemble(sections, tokenizer, renamed(used, settings.encoder_conf))
    left_out = {"attention decoder": decoder} if decoder else {}
    return Imported(file_, tuple(folder.read), "WeNet", None, left_out)


def model_settings(settings: Settings) -> dict[str, Any]:
    """Return the section `model`."""
    part = settings.encoder_conf
    return {
        "num_mels": settings.dataset_conf.fbank_conf.num_mel_bins,
        "dim": part.output_size,
        "num_heads": part.attention_heads,
        "num_layers": part.num_blocks,
        "ffn_dim": part.linear_units,
        "kernel_size": part.cnn_module_kernel,
        "dropout": part.dropout_rate,
        "subsampling": SUBSAMPLINGS[part.input_layer],
        "position": POSITIONS[part.pos_enc_layer_type],
        "conv_norm": "affine" if part.cnn_module_norm == "batch_norm" else "layer_norm",
        "conv_padding": "pointwise",
        "after_norm": part.final_norm,
    }


def context_settings(part: EncoderPart) -> dict[str, Any]:
    """Return the section `context`: the chunk sizes of training; an empty list is full context."""
    if part.static_chunk_size > 0:
        size = part.static_chunk_size
        return {"chunk_sizes": [size], "chunk_size": size, "full_share": 0.0}
    return {} if part.use_dynamic_chunk else {"chunk_sizes": [], "full_share": 1.0}


def read_units(data: bytes) -> list[str]:
    """Return the labels from number 1 on. Each line has a label and its number; the blank has 0."""
    rows = [line.split() for line in read_text(data, UNITS[0]).splitlines() if line.strip()]
    for i, row in enumerate(rows):
        if len(row) != 2 or row[1] != str(i):
            raise CheckpointError(
                f"{UNITS[0]}: line {i + 1} must be a label and {i}, got {shown(' '.join(row))}"
            )
    if not rows or rows[0][0] not in ("<blank>", "<blk>"):
        raise CheckpointError(f"{UNITS[0]}: the first label must be <blank> or <blk>")
    return [label for label, _ in rows[1:]]


def read_tokenizer(folder: Folder, settings: Settings, units: list[str]) -> tuple[Tokenizer, str]:
    """Return the tokenizer and its kind; "▁" is a space."""
    models = sorted(each.name for each in folder.path.glob("*.model"))
    if settings.tokenizer == "bpe" or (settings.tokenizer is None and models):
        model = folder.content(settings.tokenizer_conf.bpe_path, *models or ["*.model"])
        return PieceTokenizer(model, units), "pieces"
    return CharTokenizer([unit.replace("▁", " ") for unit in units]), "characters"


def read_statistics(folder: Folder, settings: Settings) -> dict[str, Tensor]:
    """Read the mean and 1 / standard deviation of the features, from sums in a JSON file."""
    size = settings.dataset_conf.fbank_conf.num_mel_bins
    if not settings.statistics:
        return {MEAN: torch.zeros(size), SCALE: torch.ones(size)}
    data = folder.content(settings.statistics_file, STATISTICS)
    try:
        values = json.loads(data)
        sums = torch.tensor([values["mean_stat"], values["var_stat"]], dtype=torch.float64)
        mean, square = sums / float(values["frame_num"])
    except (ValueError, KeyError, TypeError, RuntimeError, OverflowError, RecursionError) as error:
        raise CheckpointError(
            f"{STATISTICS} must be JSON with mean_stat, var_stat and frame_num: {reason(error)}"
        ) from None
    variance = (square - mean.square()).clamp(min=LEAST_VARIANCE)
    return {MEAN: mean, SCALE: variance.rsqrt()}


def renamed(weights: Mapping[str, Tensor], part: EncoderPart) -> dict[str, Tensor]:
    """Rename weights as in asrkit, join queries, keys and values, fold scales and batch norms."""
    rest = dict(weights)
    for name, tensor in rest.items():
        if not tensor.is_floating_point():
            raise CheckpointError(
                f"{WEIGHTS}: {shown(name)} must be floating point, got {tensor.dtype}"
            )
    try:
        found = {f"encoder.{name}": t for name, t in encoder_weights(rest, part).items()}
        found |= {f"head.{end}": rest.pop(f"ctc.ctc_lo.{end}") for end in ("weight", "bias")}
    except KeyError as error:
        raise CheckpointError(f"{WEIGHTS} has no weight {shown(error.args[0])}") from None
    except (RuntimeError, IndexError, TypeError) as error:
        raise CheckpointError(f"{WEIGHTS}: the weights do not fit: {reason(error)}") from None
    if rest:
        raise CheckpointError(
            f"{WEIGHTS}: the weight {shown(min(rest))} is unknown and cannot be imported"
        )
    return found


def encoder_weights(rest: dict[str, Tensor], part: EncoderPart) -> dict[str, Tensor]:
    """Remove the encoder's weights from `rest`, and return them by asrkit's names."""
    found = {"mean": rest.pop(MEAN), "scale": rest.pop(SCALE)}
    out = "embed.out.0" if part.input_layer == "conv2d" else "embed.linear"
    modules = {"subsampling.out": out}
    for i in range(0, 6 if part.input_layer == "conv2d8" else 4, 2):
        modules[f"subsampling.conv.{i}"] = f"embed.conv.{i}"
    if part.final_norm:
        modules["after_norm"] = "after_norm"
    for i in range(part.num_blocks):
        modules |= {f"layers.{i}.{own}": f"encoders.{i}.{name}" for own, name in LAYER.items()}
    for own, name in modules.items():
        for end in ("weight", "bias"):
            found[f"{own}.{end}"] = rest.pop(f"encoder.{name}.{end}")
    for i in range(part.num_blocks):
        attention, convolution = f"layers.{i}.attention", f"layers.{i}.convolution"
        source = f"encoder.encoders.{i}.self_attn"
        for end in ("weight", "bias"):
            qkv = [rest.pop(f"{source}.linear_{each}.{end}") for each in "qkv"]
            found[f"{attention}.qkv.{end}"] = torch.cat(qkv)
        for name in ("expand.weight", "project.weight"):  # convolutions over one frame
            found[f"{convolution}.{name}"] = found[f"{convolution}.{name}"].squeeze(2)
        if part.pos_enc_layer_type == "rel_pos":
            position = f"{attention}.position"
            found[f"{position}.projection.weight"] = rest.pop(f"{source}.linear_pos.weight")
            for own, name in (("content_bias", "u"), ("position_bias", "v")):
                found[f"{position}.{own}"] = rest.pop(f"{source}.pos_bias_{name}").unsqueeze(1)
        if part.cnn_module_norm == "batch_norm":
            names = [f"{convolution}.depthwise_norm.{end}" for end in ("weight", "bias")]
            source = f"encoder.encoders.{i}.conv_module.norm.running"
            statistics = rest.pop(f"{source}_mean"), rest.pop(f"{source}_var")
            norm = {name: found[name] for name in names}
            found |= fold_norm(norm, *statistics, part.conv_norm_eps)
    if part.pos_enc_layer_type == "rel_pos":  # WeNet multiplies the input by this
        for end in ("weight", "bias"):
            found[f"subsampling.out.{end}"] *= math.sqrt(part.output_size)
    if part.pos_enc_layer_type == "abs_pos":
        found["position.scale"] = torch.ones(())
    return found
