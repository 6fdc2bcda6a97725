"""Checks of changed settings when a training run is resumed.

The model, the text settings and `training.start_from` must not change. The schedule may change
with --change-schedule.
"""

import hashlib
import logging
import reprlib
from collections.abc import Iterator, Mapping, Set
from typing import Any

from asrkit.config import Config, ConfigError, ModelConfig, parse_record
from asrkit.model import heads
from asrkit.training.checkpoints import Checkpoint, TrainingCheckpointError
from asrkit.training.dataset import Corpus
from asrkit.training.fingerprints import Fingerprint
from asrkit.training.warm_start import WEIGHTLESS

logger = logging.getLogger(__name__)

# Settings that may always change: paths, output files, the way of computing, and the defaults of
# decoding. All others are the schedule: batches, random draws, learning rates, scores.
FREE = {
    "data.train",  # its utterances are compared, as those of data.dev and data.replay
    "data.dev", "data.replay", "data.recipe", "data.licence", "data.languages",
    "data.max_bad_share", "data.num_workers",
    "context.chunk_size", "context.left_context", "context.right_context",
    "model.kernels",
    "training.output_dir", "training.device", "training.precision",
    "training.gradient_checkpointing", "training.num_threads", "training.validate_every_epochs",
    "training.patience", "training.checkpoint_every_steps", "training.keep_checkpoints",
    "training.trackers",
}  # fmt: skip
BATCHES = "training.accumulate_batches"
TOTAL = f"{BATCHES} times ranks"  # batches of a step, independent of the number of ranks
SETS = {"training": "data.train", "dev": "data.dev", "replay": "data.replay"}  # keys of manifests
UTTERANCES = {  # names of the hashes in a `Fingerprint`, for each set
    name: [f"the {name} utterances"]
    + [f"the {part} of the {name} utterances" for part in Fingerprint._fields[1:]]
    for name in SETS
}
MAY_CHANGE = {each for names in UTTERANCES.values() for each in names}
UNKNOWN = hashlib.sha256(b"").hexdigest()  # hash of ids, texts and audio of an index


def identity(corpus: Corpus) -> dict[str, str]:
    """Hash a training run's tokenizer and utterances, by name.

    Only the utterances may change, with --change-schedule.
    """
    hashes = {"the tokenizer": hashlib.sha256(corpus.encode.tokenizer.to_bytes()).hexdigest()}
    for name, key in SETS.items():
        if found := corpus.fingerprints.get(key):
            hashes |= zip(UTTERANCES[name], found, strict=True)
    return hashes


def fixed(config: Config) -> dict[str, Any]:
    """Return the settings that must not change, by name."""
    training = config.training
    return {
        "the configuration's model": of_weights(config.model),
        "the configuration's text": config.text,
        "training.optimizer": training.optimizer,
        "training.start_from": training.start_from,
        "training.keep": (training.keep == "adapters", training.adapter_rank),
        "training.freeze": training.freeze,
        "training.rate_factors": training.rate_factors,
    }


def of_weights(model: ModelConfig) -> dict[str, Any]:
    """Return the settings of a model on which weights depend, by dotted key."""
    head, _ = heads.KINDS.chosen(model.head.model_dump())
    free = {*WEIGHTLESS, *head.FREE}
    values = dotted(model.model_dump())
    return {key: value for key, value in values if key.rpartition(".")[2] not in free}


def check_same(
    found: Checkpoint, own: dict[str, str], config: Config, ranks: int, change_schedule: bool
) -> None:
    """Compare a checkpoint with the training run that resumes from it; log a changed schedule.

    Args:
        own: `identity` of the resumed run.
        ranks: number of ranks; two ranks train like one rank with twice the accumulation.

    Raises:
        ConfigError: for a change that is not allowed.
        TrainingCheckpointError: for a checkpoint without a valid configuration.
    """
    folder = config.training.output_dir
    stored = found.model_extra or {}
    try:
        former = parse_record(found.config)
    except ConfigError as error:
        raise TrainingCheckpointError(f"its configuration is damaged: {error}") from None
    ours, theirs = fixed(config), fixed(former)
    others = [name for name in ours if ours[name] != theirs[name]]
    others += [
        name for name, value in own.items() if stored.get(name, value) not in (value, UNKNOWN)
    ]
    barred = [name for name in others if name not in MAY_CHANGE]
    if barred:
        raise ConfigError(
            f"--resume: {' and '.join(barred)} differ from those of the training in {folder}; "
            "use the same, or start another training in another training.output_dir"
        )
    changed, manifests = changed_utterances({*others}, stored, config)
    before = settings(former, found.ranks)
    for key, value in settings(config, ranks).items():
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


def settings(config: Config, ranks: int) -> dict[str, Any]:
    """Return the settings of the schedule, by dotted key."""
    values = dict(dotted(config.model_dump(mode="json")))
    found = {
        key: value for key, value in values.items()
        if key not in FREE and not key.startswith("data.canary.")
    }  # fmt: skip
    found["data.replay"] = bool(values.get("data.replay"))  # without it there are no hashes
    return found | {TOTAL: found.pop(BATCHES) * ranks}


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
