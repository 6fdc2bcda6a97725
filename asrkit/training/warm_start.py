"""Fine-tuning: training that starts from a model, whose labels may differ."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from asrkit.config.inherited import filled
from asrkit.config.model import ModelConfig
from asrkit.config.read_yaml import read_values, read_yaml
from asrkit.config.schema import Config, check_written, parse_record
from asrkit.errors import UserError
from asrkit.model import BLANK, Head, Network
from asrkit.model_file import load_model, read_header
from asrkit.text import Tokenizer
from asrkit.training.checkpoints import different

CONFIG = "config.yaml"  # configuration of a training in its output_dir
WEIGHTLESS = ("dropout", "kernels")  # settings of `model` on which no weight depends
FREE = ("head", "frontend")  # settings whose parts begin anew: the head, the normalisation


def load_training(path: str | Path, overrides: list[str], resume: bool = False) -> Config:
    """Load the configuration of a training, with the unwritten settings of `training.start_from`.

    Args:
        path: path of a YAML file, or name of a configuration of asrkit.
        resume: take these settings from the training in the output folder, if there is one.
    """
    values = read_values(path, overrides)
    training = values.get("training")
    name, folder = (
        training.get(key) if isinstance(training, dict) else None
        for key in ("start_from", "output_dir")
    )
    if not isinstance(name, str):
        return check_written(values, overrides)
    if resume and isinstance(folder, str) and (Path(folder) / CONFIG).is_file():
        former = parse_record(read_yaml(Path(folder) / CONFIG))
        whole = filled(values, former, former.training.keep_labels, former.data.replay)
        return check_written(values, overrides, whole)
    first = read_header(os.path.expanduser(name)).config
    whole = filled(values, first, True, [*first.data.replay, *first.data.train])
    known = first.model.model_dump(mode="json")
    if isinstance(whole["model"], dict):  # else the schema rejects it
        wanted = {key: value for key, value in whole["model"].items() if key in known}
        if changes := described("model", wanted, known, (*WEIGHTLESS, *FREE)):
            raise UserError(
                f"training.start_from {name}: {changes}; leave these settings out of the "
                "configuration, or begin with --config finetune, which has none of them"
            )
    config = check_written(values, overrides, whole)
    if config.training.keep == "replay" and "replay" not in values["data"]:
        for manifest in config.data.replay:
            if "://" in manifest or not Path(manifest).exists():  # a model file opens no URL
                raise UserError(
                    f"training.keep replay: {name} was trained on {manifest}, which is not here: "
                    "name recordings that it knows in data.replay"
                )
    return config


def start_from(name: str, model: Network, tokenizer: Tokenizer, config: Config) -> tuple[int, str]:
    """Copy a model's encoder with its normalisation, and the head's rows of shared labels.

    Labels are shared if their texts are equal, ignoring case. The rows of other labels keep their
    random weights. Another head keeps all of them, except a CTC layer that both heads have.

    Return the number of shared labels, and a note on parts that keep random weights, or "".

    Args:
        name: name of a ready model, or path of a model file.
    """
    other = load_model(name)
    if changes := differences(config.model, other.config.model, FREE):
        raise UserError(f"training.start_from {name}: {changes}")
    weights = model.encoder.state_dict()  # with adapters, which the other model lacks
    model.encoder.load_state_dict(weights | other.model.encoder.state_dict())
    pairs = same_labels(other.tokenizer, tokenizer)
    old, new = map(list, zip(*pairs, strict=True))
    heads = config.model.head.model_dump(), other.config.model.head.model_dump()
    if heads[0]["kind"] != heads[1]["kind"]:
        heads = {"kind": heads[0]["kind"]}, {"kind": heads[1]["kind"]}
    changes = described("model.head", *heads, type(model.head).FREE)
    note = start_head(model.head, other.model.head, changes, old, new)
    if note and config.training.keep == "adapters":
        raise UserError(
            f"training.keep adapters does not train new parts of the head{note}; leave model.head "
            "out of the configuration, or use training.keep=replay"
        )
    return len(pairs) - 1, note


def start_head(head: Head, other: Head, changes: str, old: list[int], new: list[int]) -> str:
    """Copy the rows of labels `old` of another head to labels `new`; return a note on the rest.

    If the heads differ, as `changes` describes, only those of the CTC layer are copied. The note
    names the parts that keep their random weights.
    """
    if not changes:
        head.copy_labels(other, old, new)
        parts = {key.partition(".")[0] for key in head.state_dict().keys() - other.state_dict()}
        return f"; parts of the head begin anew: {', '.join(sorted(parts))}" if parts else ""
    layers = head.ctc_layer(), other.ctc_layer()
    if layers[0] is None or layers[1] is None:
        return f"; the head begins anew: {changes}"
    layers[0].copy_labels(layers[1], old, new)
    return f"; the head begins anew except its CTC layer: {changes}"


def differences(here: ModelConfig, there: ModelConfig, free: Collection[str] = ()) -> str:
    """Describe the settings that change the shape or meaning of weights; "" if they are equal."""
    return described("model", here.model_dump(), there.model_dump(), (*WEIGHTLESS, *free))


def described(
    section: str, here: Mapping[str, Any], there: Mapping[str, Any], free: Collection[str]
) -> str:
    """Describe the different values of two sections, except those of `free`."""
    return "; ".join(
        f"{section}.{key} is {other} there, {value} here"
        for key, value, other in different(here, there)
        if key not in free
    )


def same_labels(old: Tokenizer, new: Tokenizer) -> list[tuple[int, int]]:
    """Return pairs of ids (old, new) of the blank and of each shared label."""
    exact = {old.piece(token): token for token in range(1, old.vocab_size)}
    folded = {piece.casefold(): token for piece, token in exact.items()}
    pairs = [(BLANK, BLANK)]
    for token in range(1, new.vocab_size):
        piece = new.piece(token)
        known = exact.get(piece, folded.get(piece.casefold()))
        if known is not None:
            pairs.append((known, token))
    return pairs
