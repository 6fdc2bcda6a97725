"""NVIDIA NeMo's checkpoints: cache-aware streaming Conformer and FastConformer.

With a CTC head, a transducer, or both.

A .nemo file is a tar of a YAML configuration, weights by torch.save and the tokenizer's files.
Four differences are folded into the weights: the scaling of the encoder's input, BatchNorm's
running statistics, the position of the blank, which is NeMo's last label, and a language prompt.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from asrkit.audio import build_frontend
from asrkit.errors import printable, shown, whole_number
from asrkit.interop import nemo_prompt, nemo_transducer
from asrkit.interop.checkpoint import (
    Archive,
    CheckpointError,
    open_archive,
    read_settings,
    read_weights,
)
from asrkit.interop.imported import Imported, assemble
from asrkit.interop.nemo_settings import (
    SETTINGS,
    Key,
    check_head,
    check_keys,
    check_settings,
    ctc,
    section,
)
from asrkit.text import CharTokenizer, PieceTokenizer, Tokenizer

WEIGHTS = "model_weights.ckpt"
OWN = "nemo:"  # prefix of the names of files in the archive
BATCH_NORM_EPSILON = 1e-5
BYTE = re.compile("<0x[0-9A-F]{2}>")  # a label that is a part of a character
TRANSDUCER = ("decoder", "joint")  # parts of a hybrid that --head ctc leaves out
MOST = 1 << 16  # largest size in the configuration


LAYER = {  # parts of a layer that both toolkits have: asrkit's names -> NeMo's
    "ffn1.norm": "norm_feed_forward1",
    "ffn1.expand": "feed_forward1.linear1",
    "ffn1.project": "feed_forward1.linear2",
    "attention_norm": "norm_self_att",
    "attention.out": "self_attn.linear_out",
    "convolution.norm": "norm_conv",
    "convolution.expand": "conv.pointwise_conv1",
    "convolution.depthwise": "conv.depthwise_conv",
    "convolution.project": "conv.pointwise_conv2",
    "ffn2.norm": "norm_feed_forward2",
    "ffn2.expand": "feed_forward2.linear1",
    "ffn2.project": "feed_forward2.linear2",
    "norm": "norm_out",
}
PLAIN = {"conv1": "conv.0", "conv2": "conv.2", "out": "out"}
SEPARABLE = {"conv1": "conv.0", "conv2.0": "conv.2", "conv2.1": "conv.3", "out": "out"}
SUBSAMPLINGS: dict[tuple[Any, Any], tuple[dict[str, Any], dict[str, str]]] = {
    # asrkit's options, and asrkit's names of the parts -> NeMo's
    ("striding", 4): ({"kind": "conv4"}, PLAIN),
    ("dw_striding", 4): ({"kind": "conv4", "separable": True}, SEPARABLE),
    ("dw_striding", 8): ({"kind": "conv8"}, SEPARABLE | {"conv3.0": "conv.5", "conv3.1": "conv.6"}),
}


def read_nemo(path: Path, head: str | None = None, prompt: str | None = None) -> Imported:
    """Read a .nemo file of a cache-aware streaming Conformer or FastConformer.

    Args:
        path: the file.
        head: head to import: transducer, with the CTC layer of a hybrid, or ctc; None for the
            transducer of a model that has one.
        prompt: language of a model with a language prompt.

    Raises:
        CheckpointError: for other models, and for settings that asrkit cannot compute exactly.
        OSError: if the file cannot be read.
    """
    with open_archive(path) as archive:
        settings = read_settings(archive.read(SETTINGS), SETTINGS)
        check_settings(settings)
        head = chosen_head(settings, head)
        column = nemo_prompt.column(settings, prompt)
        encoder, features = section(settings, "encoder"), section(settings, "preprocessor")
        parts = {"model": model_settings(encoder, features), "context": contexts(encoder)}
        if head == "transducer":
            width = None if column is None else 2 * number(encoder, "d_model")
            parts["model"]["head"] = transducer_settings(settings, width)
        tokenizer, parts["text"] = read_tokenizer(archive, settings, head)
        with archive.open(WEIGHTS) as stored:
            weights = Weights(read_weights(stored, WEIGHTS))
    check_filters(weights, features)
    size, layers = parts["model"]["num_mels"], parts["model"]["num_layers"]
    ours = {"encoder.mean": torch.zeros(size), "encoder.scale": torch.ones(size)}
    ours |= subsampling_weights(weights, encoder)
    for layer in range(layers):
        ours |= layer_weights(weights, layer, encoder)
    if column is not None:
        ours |= adapter_weights(weights, number(encoder, "d_model"), column)
    ours |= head_weights(weights, settings, head)
    file = assemble(parts, tokenizer, ours)
    version = printable(str(settings.get("nemo_version", "")))[:20]
    left_out = weights.left_out(head == "ctc" and "aux_ctc" in settings)
    return Imported(file, (path,), f"NeMo {version}".strip(), None, left_out)


class Weights(dict[str, Tensor]):
    """NeMo's weights by name; each is used once."""

    def take(self, name: str) -> Tensor:
        """Remove and return a weight. Raises CheckpointError if it is missing."""
        if name not in self:
            raise CheckpointError(f"the weight {shown(name)} is missing")
        return self.pop(name)

    def take_part(self, ours: str, theirs: str, biased: bool = True) -> dict[str, Tensor]:
        """Remove the weight and the bias of a part, and return them under asrkit's name.

        Args:
            ours: asrkit's name of the part.
            theirs: NeMo's name of the part.
            biased: whether the part must have a bias; otherwise a missing bias becomes zeros.

        Raises:
            CheckpointError: for a missing weight or bias.
        """
        weight = self.take(f"{theirs}.weight")
        name = f"{theirs}.bias"
        bias = self.take(name) if biased or name in self else torch.zeros(weight.shape[:1])
        return {f"{ours}.weight": weight, f"{ours}.bias": bias}

    def left_out(self, transducer: bool) -> dict[str, int]:
        """Count the unused parameters by part.

        Args:
            transducer: whether the transducer of a hybrid is left out.

        Raises:
            CheckpointError: for an unused weight of any other part.
        """
        counts: Counter[str] = Counter()
        for name, tensor in self.items():
            part = name.partition(".")[0]
            if not transducer or part not in TRANSDUCER:
                raise CheckpointError(
                    f"weight {shown(name)} belongs to a part that asrkit does not have"
                )
            counts[part] += tensor.numel()
        return dict(counts)


def number(values: dict[str, Any], key: str, lowest: int = 1) -> int:
    """Return a size of the encoder. Raises CheckpointError for other values."""
    found = whole_number(values.get(key), lowest, MOST)
    if found is None:
        raise CheckpointError(
            f"{key} must be a whole number from {lowest} to {MOST}, got {shown(values.get(key))}"
        )
    return found


def model_settings(encoder: dict[str, Any], features: dict[str, Any]) -> dict[str, Any]:
    """Return the section `model` of asrkit's configuration."""
    dim, kernel_size = number(encoder, "d_model"), number(encoder, "conv_kernel_size")
    causal = ("causal", [kernel_size - 1, 0])
    check_keys("encoder", encoder, {
        "conv_context_size": Key(None, causal, "a symmetric convolution cannot stream"),
        "feat_in": Key(None, (number(features, "features"),)),
    })  # fmt: skip
    channels = encoder.get("subsampling_conv_channels", -1)
    dropout = encoder.get("dropout", 0.1)
    return {
        "num_mels": number(features, "features"),
        "dim": dim,
        "num_heads": number(encoder, "n_heads"),
        "num_layers": number(encoder, "n_layers"),
        "ffn_dim": dim * number(encoder, "ff_expansion_factor"),
        "kernel_size": kernel_size,
        "dropout": dropout,
        "frontend": "slaney",
        "subsampling": {
            **subsampling(encoder)[0],
            "channels": dim if channels == -1 else channels,
            "pad_stages": True,
        },
        "position": "relative",
        "conv_norm": "affine" if folds_norm(encoder) else "layer_norm",
    }


def subsampling(encoder: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the entry of SUBSAMPLINGS. Raises CheckpointError for another subsampling."""
    found = encoder.get("subsampling", "striding"), encoder.get("subsampling_factor", 4)
    for known, chosen in SUBSAMPLINGS.items():
        if found == known:
            return chosen
    names = ", ".join(f"{kind} by {factor}" for kind, factor in SUBSAMPLINGS)
    raise CheckpointError(f"encoder.subsampling must be one of {names}, got {shown(found)}")


def folds_norm(encoder: dict[str, Any]) -> bool:
    """Return whether the convolutions have a BatchNorm."""
    return bool(encoder.get("conv_norm_type", "batch_norm") == "batch_norm")


def contexts(encoder: dict[str, Any]) -> dict[str, Any]:
    """Return the section `context`: the chunks used in training, the first as the default.

    With a look-ahead of R frames, chunks are R + 1 frames long. Their left context is L frames,
    rounded down to whole chunks.

    Raises:
        CheckpointError: for a missing or unbounded context.
    """
    menu = encoder.get("att_context_size")
    pairs = menu if isinstance(menu, list) and menu and isinstance(menu[0], list) else [menu]
    chunks, lefts = [], []
    for pair in pairs:
        left, ahead = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
        left, ahead = whole_number(left, 0, MOST), whole_number(ahead, 0, MOST)
        if left is None or ahead is None:
            raise CheckpointError(
                "encoder.att_context_size must be [left, ahead] in frames, or a list of such "
                f"pairs, got {shown(pair)}: unbounded contexts are not supported"
            )
        chunks.append(ahead + 1)
        lefts.append(left - left % (ahead + 1))
    return {
        "chunk_sizes": list(dict.fromkeys(chunks)),
        "left_contexts": list(dict.fromkeys(lefts)),
        "full_share": 0.0,
        "chunk_size": chunks[0],
        "left_context": lefts[0],
    }


def chosen_head(settings: dict[str, Any], head: str | None) -> str:
    """Return the head to import: `head`, or the transducer of a model that has one.

    Raises:
        CheckpointError: for a head that the model does not have.
    """
    has_transducer = bool(settings.get("joint"))
    if head is None:
        return "transducer" if has_transducer else "ctc"
    if head == "transducer" and not has_transducer:
        raise CheckpointError("the model has no transducer, which --head asks for: leave it out")
    if head == "ctc" and has_transducer and "aux_ctc" not in settings:
        raise CheckpointError("the model has no CTC head, which --head asks for: leave it out")
    return head


def transducer_settings(settings: dict[str, Any], adapter_dim: int | None) -> dict[str, Any]:
    """Return the settings of the transducer; with a hybrid's CTC layer, both have one vocabulary.

    Raises:
        CheckpointError: for settings that asrkit does not have.
    """
    if "aux_ctc" not in settings:
        return nemo_transducer.head_settings(settings, adapter_dim)
    try:
        labels, others = (
            section(part, name).get("vocabulary")
            for part, name in ((settings, "joint"), (ctc(settings), "decoder"))
        )
        if labels != others:
            raise CheckpointError("joint.vocabulary and aux_ctc.decoder.vocabulary must be equal")
        return nemo_transducer.head_settings(settings, adapter_dim)
    except CheckpointError as error:
        raise CheckpointError(f"{error}; --head ctc imports the CTC head alone") from None


def read_tokenizer(
    archive: Archive, settings: dict[str, Any], head: str
) -> tuple[Tokenizer, dict[str, Any]]:
    """Return the tokenizer and the section `text`: sentencepiece's labels, or characters.

    Raises:
        CheckpointError: for another tokenizer.
    """
    place = "joint" if head == "transducer" else "decoder"
    labels = section(settings if place == "joint" else ctc(settings), place).get("vocabulary")
    if not isinstance(labels, list) or not all(isinstance(each, str) for each in labels):
        raise CheckpointError(f"{place}.vocabulary must be a list of labels, got {shown(labels)}")
    if "tokenizer" not in settings:
        longer = [each for each in labels if len(each) != 1]
        if longer:
            raise CheckpointError(
                f"labels must be characters without a tokenizer, got {shown(longer)}"
            )
        return CharTokenizer(labels), {"tokenizer": "characters"}
    names = section(settings, "tokenizer")
    name = names.get("model_path")
    if not isinstance(name, str) or not name.startswith(OWN) or names.get("type") != "bpe":
        raise CheckpointError(
            "tokenizer must be a sentencepiece model in the archive, of type bpe, "
            f"got {shown(names)}"
        )
    if any(BYTE.fullmatch(each) for each in labels):
        raise CheckpointError(
            f"{place}.vocabulary has byte labels (<0x..>), which are not supported"
        )
    model = archive.read(name.removeprefix(OWN))
    return PieceTokenizer(model, labels), {"tokenizer": "pieces"}


def check_filters(weights: Weights, features: dict[str, Any]) -> None:
    """Raise CheckpointError if the checkpoint's window or filters differ from asrkit's."""
    frontend = build_frontend("slaney", number(features, "features"))
    window: Tensor = frontend.window  # type: ignore[assignment]
    for name, own in (("fb", frontend.filters.T[None]), ("window", window)):
        found = weights.pop(f"preprocessor.featurizer.{name}", own)
        if found.shape != own.shape or not (found - own).abs().max() < 1e-6:
            raise CheckpointError(
                f"preprocessor.featurizer.{name} does not match the settings of the preprocessor"
            )


def subsampling_weights(weights: Weights, encoder: dict[str, Any]) -> dict[str, Tensor]:
    """Return the subsampling's weights; the output's scaling is folded into its last layer."""
    ours: dict[str, Tensor] = {}
    for own, name in subsampling(encoder)[1].items():
        ours |= weights.take_part(f"encoder.subsampling.{own}", f"encoder.pre_encode.{name}")
    if encoder.get("xscaling", True):
        for part in ("weight", "bias"):
            ours[f"encoder.subsampling.out.{part}"] *= number(encoder, "d_model") ** 0.5
    return ours


def layer_weights(weights: Weights, number: int, encoder: dict[str, Any]) -> dict[str, Tensor]:
    """Return a layer's weights."""
    own = name = f"encoder.layers.{number}"
    biased = encoder.get("use_bias", True) is not False
    ours: dict[str, Tensor] = {}
    for part, theirs in LAYER.items():
        always = biased or theirs.startswith("norm")
        ours |= weights.take_part(f"{own}.{part}", f"{name}.{theirs}", always)
    for part in (
        "expand",
        "project",
    ):  # convolutions over one frame, which are linear layers in asrkit
        key = f"{own}.convolution.{part}.weight"
        ours[key] = ours[key].flatten(1)
    attention, position = f"{own}.attention", f"{own}.attention.position"
    parts = [
        weights.take_part(attention, f"{name}.self_attn.linear_{part}", biased)
        for part in ("q", "k", "v")
    ]
    for key in ("weight", "bias"):
        ours[f"{attention}.qkv.{key}"] = torch.cat([part[f"{attention}.{key}"] for part in parts])
    ours[f"{position}.projection.weight"] = weights.take(f"{name}.self_attn.linear_pos.weight")
    for key, theirs in (("content_bias", "pos_bias_u"), ("position_bias", "pos_bias_v")):
        bias = weights.take(f"{name}.self_attn.{theirs}")
        ours[f"{position}.{key}"] = bias[:, None, None]
    norm = weights.take_part(f"{own}.convolution.depthwise_norm", f"{name}.conv.batch_norm")
    if folds_norm(encoder):
        norm = folded(norm, weights, f"{name}.conv.batch_norm")
    return ours | norm


def folded(norm: dict[str, Tensor], weights: Weights, name: str) -> dict[str, Tensor]:
    """Fold a BatchNorm's running statistics into its scale and bias.

    Raises:
        CheckpointError: for parts of different lengths.
    """
    mean, variance = (weights.take(f"{name}.running_{part}") for part in ("mean", "var"))
    weights.pop(f"{name}.num_batches_tracked", None)
    if len({part.shape for part in (mean, variance, *norm.values())}) > 1:
        raise CheckpointError(f"the parts of {name} have different lengths")
    (scale_name, scale), (bias_name, bias) = norm.items()
    scale = scale.double() / (variance.double() + BATCH_NORM_EPSILON).sqrt()
    return {scale_name: scale.float(), bias_name: (bias - mean.double() * scale).float()}


def adapter_weights(weights: Weights, dim: int, column: int) -> dict[str, Tensor]:
    """Return the layers between encoder and head, with a language prompt folded in."""
    parts = [weights.take_part(f"head.adapter.{i}", f"prompt_kernel.{i}") for i in (0, 2)]
    (weight_name, weight), (bias_name, bias) = parts[0].items()
    weight, bias = nemo_prompt.folded(weight, bias, dim, column)
    return {weight_name: weight, bias_name: bias} | parts[1]


def head_weights(weights: Weights, settings: dict[str, Any], head: str) -> dict[str, Tensor]:
    """Return the weights of the CTC head or of a transducer, with the blank before the labels.

    Raises:
        CheckpointError: if the model has no head.
    """
    if head == "ctc":
        return ctc_weights(weights, settings, "head")
    names = nemo_transducer.head_weights(weights)
    found = {
        own: nemo_transducer.blank_first(own, weights.take(name)) for name, own in names.items()
    }
    if "aux_ctc" in settings:
        found |= ctc_weights(weights, settings, "head.ctc")
    return found


def ctc_weights(weights: Weights, settings: dict[str, Any], own: str) -> dict[str, Tensor]:
    """Return the weights of a CTC head under asrkit's name, with the blank before the labels.

    Raises:
        CheckpointError: if the model has no CTC head.
    """
    name = f"{'ctc_decoder' if 'aux_ctc' in settings else 'decoder'}.decoder_layers.0"
    if f"{name}.weight" not in weights:
        raise CheckpointError(
            f"this {shown(settings.get('target'))} has no CTC head: import a CTC model, a "
            "transducer, or a hybrid of both"
        )
    check_head(settings)
    head = weights.take_part(own, name)
    head[f"{own}.weight"] = head[f"{own}.weight"].flatten(1)  # a convolution over one frame
    return {key: part.roll(1, 0) for key, part in head.items()}
