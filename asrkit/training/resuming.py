"""What may change when a training is resumed: not what it trains, its schedule when asked for."""

import hashlib
import json
import logging
import reprlib
from collections.abc import Iterator
from typing import Any

from asrkit.config import Config, ConfigError, ModelConfig
from asrkit.training.corpus import Corpus
from asrkit.training.snapshots import Checkpoint

logger = logging.getLogger(__name__)

# Settings that may change without a word: where things are and what is written, how it is computed,
# and what decoding does by default. All others are the schedule: batches, draws, rates, scores.
FREE = {
    "data.train",  # its utterances are compared
    "data.dev",
    "data.recipe",
    "data.num_workers",
    "context.chunk_size",
    "context.left_context",
    "training.output_dir",
    "training.precision",
    "training.gradient_checkpointing",
    "training.num_threads",
    "training.validate_every_epochs",
    "training.checkpoint_every_steps",
    "training.keep_checkpoints",
}
BATCHES = "training.accumulate_batches"
UTTERANCES = ("the training utterances", "the dev utterances")
UNKNOWN = hashlib.sha256(b"").hexdigest()  # once stood for utterances that are read lazily


def identity(config: Config, corpus: Corpus) -> dict[str, str]:
    """Hashes of what a training trains on and what it trains; only utterances may ever change."""
    parts = {
        "the configuration's model": former_spelling(config.model),
        "the configuration's text": config.text.model_dump_json(),
        "training.optimizer": config.training.optimizer,
        "training.start_from": str(config.training.start_from),
    }
    hashes = {name: hashlib.sha256(part.encode()).hexdigest() for name, part in parts.items()}
    tokenizer = hashlib.sha256(corpus.encode.tokenizer.to_bytes()).hexdigest()
    utterances = dict(zip(UTTERANCES, corpus.fingerprints, strict=True))
    return hashes | {"the tokenizer": tokenizer} | utterances


def former_spelling(config: ModelConfig) -> str:
    """JSON of a network's settings, as checkpoints have it that are older than `subsampling`."""
    found: dict[str, Any] = {}
    for key, value in config.model_dump(mode="json").items():
        if key == "subsampling" and value["kind"] == "conv4":
            found["subsampling_channels"] = value["channels"]
            found["separable_subsampling"] = value["separable"]
        else:
            found[key] = value
    return json.dumps(found, separators=(",", ":"))


def check_same(
    found: Checkpoint, own: dict[str, str], config: Config, ranks: int, change_schedule: bool
) -> None:
    """Compare what a checkpoint comes from with what is to go on; a changed schedule is logged.

    Args:
        found: the checkpoint.
        own: `identity` of what is to go on.
        config: of it.
        ranks: that go on with it. Two train what one would with twice the accumulation.
        change_schedule: whether it may be another.

    Raises:
        ConfigError: if something differs that must not.
    """
    folder = config.training.output_dir
    stored = found.model_extra or {}
    others = [
        name for name, value in own.items() if stored.get(name, value) not in (value, UNKNOWN)
    ]
    fixed = [name for name in others if name not in UTTERANCES]
    if fixed:
        raise ConfigError(
            f"--resume: {' and '.join(fixed)} differ from those the training in {folder} began "
            "with; continue with the same, or begin another"
        )
    if found.config is None:
        logger.info("the checkpoint is of an older version, which kept no settings to compare")
    changed = [name for name in others if name in UTTERANCES]
    before = settings(found.config or {}, found.ranks)
    for key, value in settings(config.model_dump(mode="json"), ranks).items():
        if before.get(key, value) != value:
            changed.append(f"{key} ({reprlib.repr(before[key])} → {reprlib.repr(value)})")
    if changed and not change_schedule:
        raise ConfigError(
            f"--resume: {' and '.join(changed)} differ from those of the training in {folder}; "
            "continue with the same, or with --change-schedule go on with these"
        )
    done, epochs = found.progress.epoch, config.training.epochs
    if done > epochs:
        raise ConfigError(f"--resume: training.epochs {epochs}, but {done} epochs are done already")
    for change in changed:
        logger.info("changed at step %d: %s", found.progress.step, change)
    if changed and found.progress.batch:
        logger.info("where the order of batches is another, some utterances of this epoch come "
                    "twice and some not at all")  # fmt: skip


def settings(config: dict[str, Any], ranks: int) -> dict[str, Any]:
    """Those that the schedule depends on, by dotted key."""
    found = {key: value for key, value in dotted(config) if key not in FREE}
    batches = found.pop(BATCHES, None)
    return found if batches is None else found | {f"{BATCHES} times ranks": batches * ranks}


def dotted(section: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested sections with their keys."""
    for name, value in section.items():
        if isinstance(value, dict):
            yield from dotted(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
