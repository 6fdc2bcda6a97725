"""Checks of changed settings when a training run is resumed.

The model, the text settings and `training.start_from` must not change. The schedule may change
with --change-schedule.
"""

import hashlib
import logging
import reprlib
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from pydantic_core import to_json

from asrkit.config import Config, ConfigError, ModelConfig, TextConfig
from asrkit.training.checkpoints import Checkpoint
from asrkit.training.dataset import Corpus
from asrkit.training.fingerprints import Fingerprint

logger = logging.getLogger(__name__)

# Settings that may always change: paths, output files, the way of computing, and the defaults of
# decoding. All others are the schedule: batches, random draws, learning rates, scores.
FREE = {
    "data.train",  # its utterances are compared
    "data.dev",
    "data.replay",
    "data.recipe",
    "data.licence",
    "data.languages",
    "data.max_bad_share",
    "data.num_workers",
    "context.chunk_size",
    "context.left_context",
    "context.right_context",
    "training.output_dir",
    "training.device",
    "training.precision",
    "training.parallel",
    "training.gradient_checkpointing",
    "training.num_threads",
    "training.validate_every_epochs",
    "training.patience",
    "training.checkpoint_every_steps",
    "training.keep_checkpoints",
    "training.trackers",
}
# Settings of the network and of texts that every checkpoint has; older ones lack the others.
FIRST = (
    "num_mels", "dim", "num_heads", "num_layers", "ffn_dim", "kernel_size", "dropout",
    "subsampling", "position",
)  # fmt: skip
FIRST_TEXT = ("tokenizer", "vocab_size", "case", "unicode_form")
BATCHES = "training.accumulate_batches"
TOTAL = f"{BATCHES} times ranks"  # batches of a step, independent of the number of ranks
SETS = {"training": "data.train", "dev": "data.dev", "replay": "data.replay"}  # keys of manifests
UTTERANCES = {  # names of the hashes in a `Fingerprint`, for each set
    name: [f"the {name} utterances"]
    + [f"the {part} of the {name} utterances" for part in Fingerprint._fields[1:]]
    for name in SETS
}
MAY_CHANGE = {each for names in UTTERANCES.values() for each in names}
UNKNOWN = hashlib.sha256(b"").hexdigest()  # older checkpoints have it for lazily read utterances


def identity(config: Config, corpus: Corpus) -> dict[str, str]:
    """Hash a training run's model, text settings, start, tokenizer and utterances, by name.

    Only the utterances may change, with --change-schedule.
    """
    parts = {
        "the configuration's model": former_spelling(config.model),
        "the configuration's text": to_json(without_newer(config.text, FIRST_TEXT)).decode(),
        "training.optimizer": config.training.optimizer,
        "training.start_from": str(config.training.start_from),
        "training.keep": str((config.training.keep == "adapters", config.training.adapter_rank)),
        "training.freeze": str(config.training.freeze),
    }
    hashes = {name: hashlib.sha256(part.encode()).hexdigest() for name, part in parts.items()}
    tokenizer = hashlib.sha256(corpus.encode.tokenizer.to_bytes()).hexdigest()
    hashes["the tokenizer"] = tokenizer
    for name, key in SETS.items():
        if found := corpus.fingerprints.get(key):
            hashes |= zip(UTTERANCES[name], found, strict=True)
    return hashes


def former_spelling(config: ModelConfig) -> str:
    """Return a network's settings as the JSON that older checkpoints hashed.

    It has the keys that `subsampling` replaced.
    """
    found: dict[str, Any] = {}
    for key, value in without_newer(config, FIRST).items():
        if key == "subsampling" and not value.get("pad_stages"):  # also a newer key
            value = {name: option for name, option in value.items() if name != "pad_stages"}
        if key == "subsampling" and value.keys() == {"kind", "channels", "separable"}:
            found["subsampling_channels"] = value["channels"]
            found["separable_subsampling"] = value["separable"]
        else:
            found[key] = value
    return to_json(found).decode()


def without_newer(config: ModelConfig | TextConfig, first: Sequence[str]) -> dict[str, Any]:
    """Return settings without those that are not in `first` and have their default."""
    fields = type(config).model_fields
    return {
        key: value
        for key, value in config.model_dump(mode="json").items()
        if key in first or getattr(config, key) != fields[key].default
    }


def check_same(
    found: Checkpoint, own: dict[str, str], config: Config, ranks: int, change_schedule: bool
) -> None:
    """Compare a checkpoint with the training run that resumes from it; log a changed schedule.

    Args:
        own: `identity` of the resumed run.
        config: configuration of the resumed run.
        ranks: number of ranks; two ranks train like one rank with twice the accumulation.
        change_schedule: allow a changed schedule.

    Raises:
        ConfigError: for a change that is not allowed.
    """
    folder = config.training.output_dir
    stored = found.model_extra or {}
    others = [
        name for name, value in own.items() if stored.get(name, value) not in (value, UNKNOWN)
    ]
    fixed = [name for name in others if name not in MAY_CHANGE]
    if fixed:
        raise ConfigError(
            f"--resume: {' and '.join(fixed)} differ from those of the training in {folder}; "
            "use the same, or start another training in another training.output_dir"
        )
    if found.config is None:
        logger.info("the checkpoint is of an older version, without settings to compare")
    changed, manifests = changed_utterances({*others}, stored, config)
    before = settings(found.config or {}, found.ranks)
    for key, value in settings(config.model_dump(mode="json"), ranks).items():
        if before.get(key, value) != value:
            changed.append(f"{key} ({reprlib.repr(before[key])} → {reprlib.repr(value)})")
    if changed and not change_schedule:
        total = before.get(TOTAL, 0)
        other_ranks = total if ranks != found.ranks else 0
        raise ConfigError(
            f"--resume: {' and '.join(changed)} differ from those of the training in "
            f"{folder}{manifests}; use {same_batches(other_ranks, ranks)}, or accept the changes "
            "with --change-schedule"
        )
    done, epochs = found.progress.epoch, int(config.training.epochs)
    if done > epochs:
        raise ConfigError(
            f"--resume: training.epochs is {epochs}, but {done} epochs are already done"
        )
    for change in changed:
        logger.info("changed at step %d: %s", found.progress.step, change)
    if changed and found.progress.batch:
        logger.info("if the order of batches changed, some utterances occur twice in this epoch "
                    "and others not at all")  # fmt: skip


def changed_utterances(
    others: Set[str], stored: Mapping[str, Any], config: Config
) -> tuple[list[str], str]:
    """Return the changed parts of both sets, and their manifests as text for a message.

    Args:
        others: names of the hashes that differ from the stored ones.
        stored: hashes of the checkpoint; older checkpoints lack those of ids, texts and audio.
        config: configuration of the resumed run.
    """
    changed, manifests = [], []
    for name, (utterances, ids, *parts) in UTTERANCES.items():
        if utterances in others:
            same_ids = ids not in others and stored.get(ids, UNKNOWN) != UNKNOWN
            found = [f"the durations of the {name} utterances" if same_ids else utterances]
            if same_ids:
                found += [part for part in parts if part in others]
        else:
            found = [part for part in parts if part in others]
        changed += found
        if found:
            paths = getattr(config.data, SETS[name].partition(".")[2])
            paths = paths if isinstance(paths, str) else ", ".join(paths)
            manifests.append(f"{SETS[name]} {paths}")
    return changed, f" ({', '.join(manifests)})" if manifests else ""


def settings(config: dict[str, Any], ranks: int) -> dict[str, Any]:
    """Return the settings of the schedule, by dotted key."""
    values = dict(dotted(config))
    found = {
        key: value for key, value in values.items()
        if key not in FREE and not key.startswith("data.canary.")
    }  # fmt: skip
    found["data.replay"] = bool(values.get("data.replay"))  # without it there are no hashes
    batches = found.pop(BATCHES, None)
    return found if batches is None else found | {TOTAL: batches * ranks}


def same_batches(total: int, ranks: int) -> str:
    """Describe how to keep `total` batches a step with `ranks` ranks; "the same" if total is 0."""
    if not total:
        return "the same"
    if total % ranks:
        return f"a number of ranks that divides the {total} batches of a step"
    return f"{BATCHES}={total // ranks} on {ranks} ranks"


def dotted(section: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested sections with their dotted keys."""
    for name, value in section.items():
        if isinstance(value, dict):
            yield from dotted(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
