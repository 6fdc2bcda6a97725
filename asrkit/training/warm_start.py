"""Fine-tuning: training that starts from a model, whose labels may differ."""

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from asrkit.config import Config, ModelConfig, check_written, filled, parse_config
from asrkit.config.read_yaml import read_values, read_yaml
from asrkit.data.labelled import read_labelled
from asrkit.errors import UserError, shown
from asrkit.model import BLANK, Head, Network
from asrkit.model_file import load_model, read_config_of
from asrkit.text import Tokenizer

CONFIG = "config.yaml"  # configuration of a training in its output_dir
WEIGHTLESS = ("dropout", "kernels")  # settings of `model` on which no weight depends


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
        own = parse_config(read_yaml(Path(folder) / CONFIG))
        whole = filled(values, own, own.training.keep_labels, own.data.replay)
        return check_written(values, overrides, whole)
    first = read_config_of(os.path.expanduser(name))
    whole = filled(values, first, True, [*first.data.replay, *first.data.train])
    theirs = first.model.model_dump(mode="json")
    if isinstance(whole["model"], dict):  # else the schema rejects it
        ours = {key: value for key, value in whole["model"].items() if key in theirs}
        if found := different("model", ours, theirs, (*WEIGHTLESS, "head")):
            raise UserError(
                f"training.start_from {name}: {found}; leave these settings out of the "
                "configuration, or begin with --config finetune, which has none of them"
            )
    config = check_written(values, overrides, whole)
    if config.training.keep == "replay" and "replay" not in values["data"]:
        require_old(name, config.data.replay)
    return config


def require_old(name: str, manifests: Sequence[str]) -> None:
    """Raise UserError if a manifest that a model was trained on is not here."""
    for path in manifests:
        if "://" in path or not Path(path).exists():  # a model file opens no URL
            raise UserError(
                f"training.keep replay: {name} was trained on {path}, which is not here: name "
                "recordings that it knows in data.replay"
            )


def heard_speakers(name: str, speakers: Collection[str]) -> str:
    """Return a line about which of these speakers a model was trained on.

    A model file names its manifests and the model that it started from, so the speakers are known
    only where these are.
    """
    heard: set[str] = set()
    missing: list[str] = []
    models: list[str] = []
    model: str | None = name
    while model is not None and model not in models:
        models.append(model)
        config = None
        with suppress(UserError):
            config = None if "://" in model else read_config_of(os.path.expanduser(model))
        for path in (*config.data.train, *config.data.replay) if config else (model,):
            found = speakers_of(path) if config else set()
            heard |= found
            missing += [] if found else [path]
        model = config.training.start_from if config else None
    if known := sorted(heard.intersection(speakers)):
        named = ", ".join(map(shown, known[:3])) + (", …" if len(known) > 3 else "")
        return (
            f"{name} was trained on {len(known)} of these {len(speakers)} speakers ({named}): new "
            "speakers will have more errors"
        )
    if missing:
        first = shown(missing[0])
        return f"the speakers that {name} was trained on are unknown: {first} names none here"
    return f"{name} was trained on none of these {len(speakers)} speakers"


def speakers_of(manifest: str) -> set[str]:
    """Return the speakers that a manifest names; an empty set if it is not here."""
    if "://" in manifest or not Path(manifest).exists():  # a model file opens no URL
        return set()
    with suppress(UserError):
        return {each.speaker for each in read_labelled(manifest, []) if each.speaker}
    return set()


def start_from(name: str, model: Network, tokenizer: Tokenizer, config: Config) -> tuple[int, str]:
    """Copy a model's encoder with its normalisation, and the head's rows of shared labels.

    Labels are shared if their texts are equal, ignoring case. The rows of other labels keep their
    random weights. Another head keeps all of them, except a CTC layer that both heads have.

    Return the number of shared labels, and a note on parts that keep random weights, or "".

    Args:
        name: name of a ready model, or path of a model file.
    """
    other = load_model(name)
    if different := differences(config.model, other.config.model, ("head",)):
        raise UserError(f"training.start_from {name}: {different}")
    weights = model.encoder.state_dict()  # with adapters, which the other model lacks
    model.encoder.load_state_dict(weights | other.model.encoder.state_dict())
    pairs = same_labels(other.tokenizer, tokenizer)
    old, new = map(list, zip(*pairs, strict=True))
    changed = differences_of_head(config.model, other.config.model, type(model.head).FREE)
    note = start_head(model.head, other.model.head, changed, old, new)
    if note and config.training.keep == "adapters":
        raise UserError(
            f"training.keep adapters does not train new parts of the head{note}; leave model.head "
            "out of the configuration, or use training.keep=replay"
        )
    return len(pairs) - 1, note


def start_head(own: Head, other: Head, changed: str, old: list[int], new: list[int]) -> str:
    """Copy the rows of labels `old` of another head to labels `new`; return a note on the rest.

    If the heads differ, as `changed` describes, only those of the CTC layer are copied. The note
    names the parts that keep their random weights.
    """
    if not changed:
        own.copy_labels(other, old, new)
        parts = {key.partition(".")[0] for key in own.state_dict().keys() - other.state_dict()}
        return f"; parts of the head begin anew: {', '.join(sorted(parts))}" if parts else ""
    layers = own.ctc_layer(), other.ctc_layer()
    if layers[0] is None or layers[1] is None:
        return f"; the head begins anew: {changed}"
    layers[0].copy_labels(layers[1], old, new)
    return f"; the head begins anew except its CTC layer: {changed}"


def differences_of_head(here: ModelConfig, there: ModelConfig, free: Collection[str]) -> str:
    """Describe the settings that make another head, except those of `free`; "" if equal."""
    ours, theirs = here.head.model_dump(), there.head.model_dump()
    if ours["kind"] != theirs["kind"]:
        ours, theirs = ({"kind": each["kind"]} for each in (ours, theirs))
    return different("model.head", ours, theirs, free)


def differences(here: ModelConfig, there: ModelConfig, free: Collection[str] = ()) -> str:
    """Describe the settings that change the shape or meaning of weights; "" if they are equal."""
    return different("model", here.model_dump(), there.model_dump(), (*WEIGHTLESS, *free))


def different(
    section: str, ours: Mapping[str, Any], theirs: Mapping[str, Any], free: Collection[str]
) -> str:
    """Describe the different values of two sections with the same keys, except those of `free`."""
    return "; ".join(
        f"{section}.{key} is {theirs[key]} there, {ours[key]} here"
        for key in ours
        if key not in free and ours[key] != theirs[key]
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
