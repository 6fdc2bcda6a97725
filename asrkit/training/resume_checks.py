"""Checks of changed settings when a training run is resumed.

The model, the text settings and `training.start_from` must not change. Other changes are logged.
"""

import logging
import reprlib
from collections.abc import Iterator
from typing import Any

from asrkit.config.model import ModelConfig
from asrkit.config.read_yaml import ConfigError
from asrkit.config.schema import Config, parse_record
from asrkit.model import heads
from asrkit.training.checkpoints import Checkpoint, TrainingCheckpointError, different
from asrkit.training.warm_start import WEIGHTLESS

logger = logging.getLogger(__name__)

BATCHES = "training.accumulate_batches"
TOTAL = f"{BATCHES} times ranks"  # batches of a step, independent of the number of ranks
TOKENIZER = "the tokenizer"


def fixed(config: Config) -> dict[str, Any]:
    """Return the settings that must not change, by dotted key."""
    training = config.training
    return {
        **{f"model.{key}": value for key, value in of_weights(config.model).items()},
        **dict(dotted(config.text.model_dump(), "text.")),
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


def check_same(stored: Checkpoint, wanted: dict[str, str], config: Config, ranks: int) -> None:
    """Compare a checkpoint with the training run that resumes from it; log what has changed.

    Args:
        wanted: `identity` of the resumed run's corpus.
        ranks: number of ranks; two ranks train like one rank with twice the accumulation.

    Raises:
        ConfigError: for a change that is not allowed.
        TrainingCheckpointError: for a checkpoint without a valid configuration.
    """
    folder = config.training.output_dir
    try:
        former = parse_record(stored.config)
    except ConfigError as error:
        raise TrainingCheckpointError(f"its configuration is damaged: {error}") from None
    identities = stored.identity or ({TOKENIZER: stored.tokenizer} if stored.tokenizer else {})
    hashes = [name for name in wanted if identities.get(name, wanted[name]) != wanted[name]]
    barred = [change(*each) for each in different(fixed(former), fixed(config))]
    if barred := [*barred, *(["tokenizer"] if TOKENIZER in hashes else [])]:
        raise ConfigError(
            f"--resume: the training in {folder} has another {', '.join(barred)}; use the same, or "
            "start another training in another training.output_dir"
        )
    before = settings(former, stored.ranks)
    changed = hashes + [
        change(key, before[key], value)
        for key, value in settings(config, ranks).items()
        if before.get(key, value) != value
    ]
    done, epochs = stored.progress.epoch, int(config.training.epochs)
    if done > epochs:
        raise ConfigError(
            f"--resume: training.epochs is {epochs}, but {done} epochs are already done"
        )
    for each in changed:
        logger.warning("changed at step %d: %s", stored.progress.step, each)


def change(key: str, before: Any, value: Any) -> str:
    """Return a setting's key with its former and its new value."""
    return f"{key} ({reprlib.repr(before)} → {reprlib.repr(value)})"


def settings(config: Config, ranks: int) -> dict[str, Any]:
    """Return the settings by dotted key, with the batches of a step on all ranks."""
    values = dict(dotted(config.model_dump(mode="json")))
    return values | {TOTAL: values.pop(BATCHES) * ranks}


def dotted(section: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested sections with their dotted keys."""
    for name, value in section.items():
        if isinstance(value, dict):
            yield from dotted(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
