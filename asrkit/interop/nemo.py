"""NVIDIA NeMo's checkpoints: cache-aware streaming FastConformer.

With a CTC head, a transducer, or both.

A .nemo file is a tar of a YAML configuration, weights by torch.save and the tokenizer's files.
"""

import re
from pathlib import Path
from typing import Any

from asrkit import text
from asrkit.errors import printable, shown
from asrkit.interop import nemo_weights
from asrkit.interop.checkpoint import (
    Archive,
    CheckpointError,
    open_archive,
    read_settings,
    read_weights,
)
from asrkit.interop.imported import Imported, assemble, case_of
from asrkit.interop.nemo_settings import CTC, Encoder, Model, Transducer
from asrkit.interop.settings import parse
from asrkit.interop.weights import Weights

SETTINGS, WEIGHTS = "model_config.yaml", "model_weights.ckpt"
AUXILIARY = "ctc_decoder.decoder_layers.0"  # CTC layer of a hybrid
LAYER = "decoder.decoder_layers.0"  # of a CTC model
TRANSDUCER = {"decoder.": "decoder", "joint.": "joint"}  # parts that --head ctc leaves out
CTC_WEIGHT = 0.3  # of the loss of a hybrid when it is trained further, as in NeMo's recipes
BYTE = re.compile("<0x[0-9A-F]{2}>")  # a label that is a part of a character


def read_nemo(path: Path, head: str | None = None, prompt: str | None = None) -> Imported:
    """Read a .nemo file of a cache-aware streaming FastConformer.

    Args:
        head: head to import: transducer, with the CTC layer of a hybrid, or ctc; None for the
            transducer of a model that has one.
        prompt: language of a model with a language prompt.
    """
    with open_archive(path) as archive:
        values = read_settings(archive.read(SETTINGS), SETTINGS)
        settings = parse(Model, values, SETTINGS)
        with archive.open(WEIGHTS) as stored:
            weights = Weights(read_weights(stored, WEIGHTS))
        head = chosen_head(weights, head)
        is_transducer, is_hybrid = head == "transducer", f"{AUXILIARY}.weight" in weights
        encoder, num_mels = settings.encoder, settings.preprocessor.features
        parts = {"model": model_settings(encoder, num_mels), "context": contexts(encoder)}
        column = prompt_column(settings, weights, prompt)
        ours = nemo_weights.encoder_weights(weights, encoder, num_mels)
        if column is not None:
            ours |= nemo_weights.adapter_weights(weights, encoder.d_model, column)
        if is_hybrid or not is_transducer:
            name = AUXILIARY if is_hybrid else LAYER
            ours |= nemo_weights.ctc_weights(weights, name, "head.ctc" if is_transducer else "head")
        if not is_transducer:
            branch = values.get("aux_ctc", {}) if is_hybrid else values
            labels = parse(CTC, branch, SETTINGS + ": aux_ctc" * is_hybrid).decoder.vocabulary
        else:
            transducer = parse(Transducer, values, SETTINGS)
            labels = transducer.joint.vocabulary
            ours |= nemo_weights.transducer_weights(weights)
            parts["model"]["head"] = head_settings(transducer) | {
                "ctc_weight": CTC_WEIGHT if is_hybrid else 0.0,
                "adapter_dim": None if column is None else 2 * encoder.d_model,
            }
        tokenizer, kind = read_tokenizer(archive, settings, labels)
    parts["text"] = {"tokenizer": kind, "case": case_of(labels)}
    file = assemble(parts, tokenizer, ours)
    left_out = weights.left_out(TRANSDUCER if is_hybrid and not is_transducer else {})
    version = printable(str(settings.nemo_version))[:20]
    return Imported(file, (path,), f"NeMo {version}".strip(), left_out)


def chosen_head(weights: Weights, head: str | None) -> str:
    """Return the head to import: `head`, or the transducer of a model that has one."""
    has_transducer = any(name.startswith("joint.") for name in weights)
    has_ctc = not {f"{AUXILIARY}.weight", f"{LAYER}.weight"}.isdisjoint(weights)
    if not has_transducer and not has_ctc:
        raise CheckpointError("the model has no CTC head and no transducer: import one with either")
    if not {None: True, "transducer": has_transducer, "ctc": has_ctc}[head]:
        raise CheckpointError(f"the model has no head {head}, got --head {head}: leave it out")
    return head or ("transducer" if has_transducer else "ctc")


def prompt_column(settings: Model, weights: Weights, prompt: str | None) -> int | None:
    """Return the number of a language among the prompts; None for a model without prompts.

    Args:
        prompt: name of the language in the model's dictionary.
    """
    if not any(name.startswith("prompt_kernel.") for name in weights):
        if prompt is None:
            return None
        raise CheckpointError(
            f"only models with a language prompt take --prompt, got {shown(prompt)}: leave it out"
        )
    known = settings.model_defaults.prompt_dictionary
    if prompt not in known:
        raise CheckpointError(
            f"the model reads a language prompt, got {shown(prompt)}: choose one by "
            f"asrkit import nemo --prompt, from {', '.join(map(shown, known))}"
        )
    return known[prompt]


def model_settings(encoder: Encoder, num_mels: int) -> dict[str, Any]:
    """Return the section `model` of asrkit's configuration."""
    channels = encoder.subsampling_conv_channels
    return {
        "num_mels": num_mels,
        "dim": encoder.d_model,
        "num_heads": encoder.n_heads,
        "num_layers": encoder.n_layers,
        "ffn_dim": encoder.d_model * encoder.ff_expansion_factor,
        "kernel_size": encoder.conv_kernel_size,
        "dropout": encoder.dropout,
        "frontend": "slaney",
        "subsampling": {
            "kind": "conv8",
            "channels": encoder.d_model if channels == -1 else channels,
            "pad_stages": True,
        },
        "position": "relative",
        "conv_norm": "affine" if encoder.conv_norm_type == "batch_norm" else "layer_norm",
    }


def contexts(encoder: Encoder) -> dict[str, Any]:
    """Return the section `context`: the chunks used in training, the first as the default.

    With a look-ahead of R frames, chunks are R + 1 frames long. Their left context is L frames,
    rounded down to whole chunks.
    """
    chunks = [ahead + 1 for _, ahead in encoder.att_context_size]
    lefts = [left - left % (ahead + 1) for left, ahead in encoder.att_context_size]
    return {
        "chunk_sizes": list(dict.fromkeys(chunks)),
        "left_contexts": list(dict.fromkeys(lefts)),
        "full_share": 0.0,
        "chunk_size": chunks[0],
        "left_context": lefts[0],
    }


def head_settings(transducer: Transducer) -> dict[str, Any]:
    """Return `model.head` of asrkit's configuration, without its CTC layer and adapter."""
    decoder, joint = transducer.decoder, transducer.joint.jointnet
    predictor = (
        {"predictor": "stateless", "context": decoder.context_size,
         "predictor_norm": decoder.normalization_mode == "layer"}
        if decoder.is_stateless
        else {"predictor": "lstm", "predictor_layers": decoder.prednet.pred_rnn_layers}
    )  # fmt: skip
    return predictor | {
        "kind": "transducer",
        "predictor_dim": decoder.prednet.pred_hidden,
        "joint_dim": joint.joint_hidden,
        "activation": joint.activation,
        "max_symbols": 10,
        "dropout": joint.dropout or 0.0,
    }


def read_tokenizer(
    archive: Archive, settings: Model, labels: list[str]
) -> tuple[text.Tokenizer, str]:
    """Return the tokenizer, of sentencepiece's labels or of characters, and its kind."""
    if settings.tokenizer is None:
        if longer := [each for each in labels if len(each) != 1]:
            raise CheckpointError(
                f"labels must be characters without a tokenizer, got {shown(longer)}"
            )
        return text.CharTokenizer(labels), "characters"
    if any(BYTE.fullmatch(each) for each in labels):
        raise CheckpointError("the vocabulary has byte labels (<0x..>), which are not supported")
    model = archive.read(settings.tokenizer.model_path.removeprefix("nemo:"))
    return text.PieceTokenizer(model, labels), "pieces"
