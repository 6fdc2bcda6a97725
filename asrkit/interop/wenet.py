"""WeNet's model folders: train.yaml, final.pt, units.txt and, in some, a sentencepiece model."""

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from asrkit.errors import shown
from asrkit.interop.checkpoint import (
    CheckpointError,
    read_bytes,
    read_settings,
    read_text,
    read_weights,
)
from asrkit.interop.imported import Imported, assemble, case_of
from asrkit.interop.settings import parse
from asrkit.interop.weights import Names, Weights
from asrkit.interop.wenet_settings import EncoderPart, Settings
from asrkit.text import CharTokenizer, PieceTokenizer, Tokenizer

SETTINGS, WEIGHTS = "train.yaml", "final.pt"
UNITS = ("units.txt", "words.txt")  # words.txt in older folders
CMVN = {"encoder.mean": "mean", "encoder.scale": "istd"}
# Computed positions, and an unused layer of older models.
UNUSED = re.compile(
    r"encoder\.embed\.pos_enc\.pe|encoder\.encoders\.\d+\.concat_linear\.(weight|bias)"
)
SUBSAMPLINGS = {"conv2d": "conv4_valid", "conv2d6": "conv6_valid", "conv2d8": "conv8_valid"}
LAYER: Names = {
    "ffn1.norm": "norm_ff_macaron",
    "ffn1.expand": "feed_forward_macaron.w_1",
    "ffn1.project": "feed_forward_macaron.w_2",
    "attention_norm": "norm_mha",
    "attention.qkv": ("self_attn.linear_q", "self_attn.linear_k", "self_attn.linear_v"),
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


def read_wenet(path: Path) -> Imported:
    """Read the folder of a U2 or U2++ Conformer: encoder and CTC, without the attention decoder."""
    if not path.is_dir():
        raise CheckpointError(f"must be a folder with {SETTINGS}, {WEIGHTS} and {UNITS[0]}")
    read = [find(path, SETTINGS), find(path, *UNITS), find(path, WEIGHTS)]
    settings = parse(Settings, read_settings(content(read[0]), SETTINGS), SETTINGS)
    units, kind = read_units(content(read[1])), "characters"
    models = sorted(each.name for each in path.glob("*.model"))
    tokenizer: Tokenizer
    if settings.tokenizer == "bpe" or (settings.tokenizer is None and models):
        read.append(find(path, *models or ["*.model"]))
        tokenizer, kind = PieceTokenizer(content(read[3]), units), "pieces"
    else:
        tokenizer = CharTokenizer([unit.replace("▁", " ") for unit in units])
    with read[2].open("rb") as file:
        weights = Weights(read_weights(file, WEIGHTS))
    for name in [name for name in weights if UNUSED.fullmatch(name)]:
        del weights[name]
    sections = {
        "model": model_settings(settings),
        "text": {"tokenizer": kind, "case": case_of(units)},
        "context": context_settings(settings.encoder_conf),
    }
    file_ = assemble(sections, tokenizer, renamed(weights, settings))
    left_out = weights.left_out({"decoder.": "attention decoder"})
    return Imported(file_, tuple(read), "WeNet", left_out)


def find(folder: Path, *names: str) -> Path:
    """Return the first of these files that exists in a folder."""
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise CheckpointError(f"the folder has no file {' or '.join(names)}")


def content(path: Path) -> bytes:
    """Read a small file."""
    with path.open("rb") as file:
        return read_bytes(file, path.name)


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
        "position": "absolute_keys",
        "conv_norm": "affine" if part.cnn_module_norm == "batch_norm" else "layer_norm",
        "conv_padding": "pointwise",
        "after_norm": True,
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


def renamed(weights: Weights, settings: Settings) -> dict[str, Tensor]:
    """Remove the weights of encoder and CTC, and return them by asrkit's names."""
    part, size = settings.encoder_conf, settings.dataset_conf.fbank_conf.num_mel_bins
    found = {"encoder.mean": torch.zeros(size), "encoder.scale": torch.ones(size)}
    if settings.normalizes:
        found = {key: weights.take(f"encoder.global_cmvn.{name}") for key, name in CMVN.items()}
    out = "out.0" if part.input_layer == "conv2d" else "linear"
    stem = range(0, 6 if part.input_layer == "conv2d8" else 4, 2)
    modules: Names = {"out": out} | {f"conv.{i}": f"conv.{i}" for i in stem}
    found |= weights.take_modules("encoder.subsampling", "encoder.embed", modules)
    for i in range(part.num_blocks):
        found |= weights.take_conformer_layer(
            f"encoder.layers.{i}", f"encoder.encoders.{i}", LAYER,
            folds_norm=part.cnn_module_norm == "batch_norm", bias_dims=1,
        )  # fmt: skip
    found |= weights.take_modules("encoder", "encoder", {"after_norm": "after_norm"})
    for end in ("weight", "bias"):  # WeNet multiplies the input by this
        found[f"encoder.subsampling.out.{end}"] *= part.output_size**0.5
    return found | {f"head.{end}": weights.take(f"ctc.ctc_lo.{end}") for end in ("weight", "bias")}
