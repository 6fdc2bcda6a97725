"""NVIDIA NeMo's checkpoints: cache-aware streaming Conformer and FastConformer.

With a CTC head, a transducer, or both.

A .nemo file is a tar of a YAML configuration, weights by torch.save and the tokenizer's files.
"""

import re
from pathlib import Path
from typing import Any

import torch

from asrkit.errors import printable, shown, whole_number
from asrkit.interop import nemo_transducer
from asrkit.interop.checkpoint import (
    Archive,
    CheckpointError,
    open_archive,
    read_settings,
    read_weights,
)
from asrkit.interop.imported import Imported, assemble, case_of
from asrkit.interop.nemo_settings import (
    HYBRIDS,
    MOST,
    PROMPTED,
    SETTINGS,
    Key,
    check_keys,
    check_settings,
    class_of,
    ctc,
    folds_norm,
    section,
    size,
)
from asrkit.interop.nemo_weights import (
    TRANSDUCER,
    adapter_weights,
    check_filters,
    head_weights,
    layer_weights,
    subsampling_weights,
)
from asrkit.interop.weights import Weights
from asrkit.text import CharTokenizer, PieceTokenizer, Tokenizer

WEIGHTS = "model_weights.ckpt"
OWN = "nemo:"  # prefix of the names of files in the archive
BYTE = re.compile("<0x[0-9A-F]{2}>")  # a label that is a part of a character


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
        head: head to import: transducer, with the CTC layer of a hybrid, or ctc; None for the
            transducer of a model that has one.
        prompt: language of a model with a language prompt.
    """
    with open_archive(path) as archive:
        settings = read_settings(archive.read(SETTINGS), SETTINGS)
        check_settings(settings)
        if class_of(settings) not in ("", *HYBRIDS):
            settings.pop("aux_ctc", None)  # only hybrids have this layer, whatever is configured
        head = chosen_head(settings, head)
        column = prompt_column(settings, prompt)
        encoder, features = section(settings, "encoder"), section(settings, "preprocessor")
        parts = {"model": model_settings(encoder, features), "context": contexts(encoder)}
        if head == "transducer":
            width = None if column is None else 2 * parts["model"]["dim"]
            parts["model"]["head"] = transducer_settings(settings, width)
        tokenizer, parts["text"] = read_tokenizer(archive, settings, head)
        with archive.open(WEIGHTS) as stored:
            weights = Weights(read_weights(stored, WEIGHTS))
    num_mels, dim = parts["model"]["num_mels"], parts["model"]["dim"]
    check_filters(weights, num_mels)
    ours = {"encoder.mean": torch.zeros(num_mels), "encoder.scale": torch.ones(num_mels)}
    scale = dim**0.5 if encoder.get("xscaling", True) else None
    ours |= subsampling_weights(weights, subsampling(encoder)[1], scale)
    for layer in range(parts["model"]["num_layers"]):
        ours |= layer_weights(weights, layer, encoder)
    if column is not None:
        ours |= adapter_weights(weights, dim, column)
    ours |= head_weights(weights, settings, head)
    file = assemble(parts, tokenizer, ours)
    version = printable(str(settings.get("nemo_version", "")))[:20]
    left_out = weights.left_out(TRANSDUCER if head == "ctc" and "aux_ctc" in settings else {})
    return Imported(file, (path,), f"NeMo {version}".strip(), None, left_out)


def model_settings(encoder: dict[str, Any], features: dict[str, Any]) -> dict[str, Any]:
    """Return the section `model` of asrkit's configuration."""
    dim = size("encoder", encoder, "d_model")
    kernel_size = size("encoder", encoder, "conv_kernel_size", 31)
    num_mels = size("preprocessor", features, "features", 64)
    causal = ("causal", [kernel_size - 1, 0])
    check_keys("encoder", encoder, {
        "conv_context_size": Key(None, causal, "a symmetric convolution cannot stream"),
        "feat_in": Key(None, (num_mels,)),
    })  # fmt: skip
    channels = encoder.get("subsampling_conv_channels", -1)
    dropout = encoder.get("dropout", 0.1)
    return {
        "num_mels": num_mels,
        "dim": dim,
        "num_heads": size("encoder", encoder, "n_heads", 4),
        "num_layers": size("encoder", encoder, "n_layers"),
        "ffn_dim": dim * size("encoder", encoder, "ff_expansion_factor", 4),
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


def contexts(encoder: dict[str, Any]) -> dict[str, Any]:
    """Return the section `context`: the chunks used in training, the first as the default.

    With a look-ahead of R frames, chunks are R + 1 frames long. Their left context is L frames,
    rounded down to whole chunks.
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
    """Return the head to import: `head`, or the transducer of a model that has one."""
    has_transducer = bool(settings.get("joint"))
    if head is None:
        return "transducer" if has_transducer else "ctc"
    if head == "transducer" and not has_transducer:
        raise CheckpointError("the model has no transducer, which --head asks for: leave it out")
    if head == "ctc" and has_transducer and "aux_ctc" not in settings:
        raise CheckpointError("the model has no CTC head, which --head asks for: leave it out")
    return head


def prompt_column(settings: dict[str, Any], prompt: str | None) -> int | None:
    """Return the number of a language among the prompts; None for a model without prompts.

    Args:
        prompt: name of the language in the model's dictionary.
    """
    if class_of(settings) != PROMPTED:
        if prompt is None:
            return None
        raise CheckpointError(
            f"only models with a language prompt take --prompt, got {shown(prompt)}: leave it out"
        )
    known = section(settings, "model_defaults").get("prompt_dictionary")
    known = known if isinstance(known, dict) else {}
    if prompt not in known:
        raise CheckpointError(
            f"the model reads a language prompt, got {shown(prompt)}: choose one, as in NAME:de-DE "
            f"or by --prompt, from {', '.join(map(shown, known))}"
        )
    column = whole_number(known[prompt], 0)
    if column is None:
        raise CheckpointError(
            f"model_defaults.prompt_dictionary must have whole numbers, got {shown(known[prompt])}"
        )
    return column


def transducer_settings(settings: dict[str, Any], adapter_dim: int | None) -> dict[str, Any]:
    """Return the transducer's settings; with a hybrid's CTC layer, both have one vocabulary."""
    if "aux_ctc" in settings:
        joint, decoder = section(settings, "joint"), section(ctc(settings), "decoder")
        if joint.get("vocabulary") != decoder.get("vocabulary"):
            raise CheckpointError(
                "joint.vocabulary and aux_ctc.decoder.vocabulary must be equal; --head ctc imports "
                "the CTC head alone"
            )
    return nemo_transducer.head_settings(settings, adapter_dim)


def read_tokenizer(
    archive: Archive, settings: dict[str, Any], head: str
) -> tuple[Tokenizer, dict[str, Any]]:
    """Return the tokenizer and the section `text`: sentencepiece's labels, or characters."""
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
        return CharTokenizer(labels), {"tokenizer": "characters", "case": case_of(labels)}
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
    return PieceTokenizer(model, labels), {"tokenizer": "pieces", "case": case_of(labels)}
