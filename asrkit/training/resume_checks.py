"""Checks of what changed when a training is resumed.

The model, the texts and the start may not change; the schedule may, with --change-schedule.
"""

import hashlib
import logging
import reprlib
from collections.abc import Iterator, Mapping, Set
from typing import Any

from pydantic_core import to_json

from asrkit.config import Config, ConfigError, ModelConfig
from asrkit.training.checkpoints import Checkpoint
from asrkit.training.dataset import Corpus, Fingerprint

logger = logging.getLogger(__name__)

# Settings that may always change: paths, files written, how things are computed, and the defaults
# of decoding. All others are the schedule: batches, random draws, learning rates, scores.
FREE = {
    "data.train",  # its utterances are compared
    "data.dev",
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
}
# Of the network, not in older checkpoints.
LATER = ("head", "frontend", "conv_norm", "conv_padding", "after_norm", "kernels")
BATCHES = "training.accumulate_batches"
TOTAL = f"{BATCHES} times ranks"  # batches of a step: the same for any number of ranks
SETS = {"training": "data.train", "dev": "data.dev"}  # with the keys of their manifests
UTTERANCES = {  # names of the hashes in a `Fingerprint`, for each set
    name: [f"the {name} utterances"]
    + [f"the {part} of the {name} utterances" for part in Fingerprint._fields[1:]]
    for name in SETS
}
MAY_CHANGE = {each for names in UTTERANCES.values() for each in names}
UNKNOWN = hashlib.sha256(b"").hexdigest()  # older checkpoints have it for lazily read utterances


def identity(config: Config, corpus: Corpus) -> dict[str, str]:
    """Hashes of a training's model, texts, start, tokenizer and utterances, by name.

    Of these only the utterances may change, with --change-schedule.
    """
    parts = {
        "the configuration's model": former_spelling(config.model),
        "the configuration's text": config.text.model_dump_json(),
        "training.optimizer": config.training.optimizer,
        "training.start_from": str(config.training.start_from),
    }
    hashes = {name: hashlib.sha256(part.encode()).hexdigest() for name, part in parts.items()}
    tokenizer = hashlib.sha256(corpus.encode.tokenizer.to_bytes()).hexdigest()
    hashes["the tokenizer"] = tokenizer
    for names, found in zip(UTTERANCES.values(), corpus.fingerprints, strict=True):
        hashes |= zip(names, found, strict=True)
    return hashes


def former_spelling(config: ModelConfig) -> str:
    """JSON of a network's settings as former checkpoints hash it.

    With the keys from before `subsampling`; keys that came later are left out at their defaults.
    """
    found: dict[str, Any] = {}
    for key, value in config.model_dump(mode="json").items():
        if key in LATER and getattr(config, key) == ModelConfig.model_fields[key].default:
            continue
        if key == "subsampling" and not value.get("pad_stages"):  # it came later, too
            value = {name: option for name, option in value.items() if name != "pad_stages"}
        if key == "subsampling" and value.keys() == {"kind", "channels", "separable"}:
            found["subsampling_channels"] = value["channels"]
            found["separable_subsampling"] = value["separable"]
        else:
            found[key] = value
    return to_json(found).decode()


def check_same(
    found: Checkpoint, own: dict[str, str], config: Config, ranks: int, change_schedule: bool
) -> None:
    """Compare a checkpoint's training with the one that resumes from it; log a changed schedule.

    Args:
        found: the checkpoint.
        own: `identity` of the training that resumes.
        config: of the training that resumes.
        ranks: number of its ranks; two ranks train as one with twice the accumulation.
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
            f"--resume: {' and '.join(fixed)} differ from those the training in {folder} began "
            "with; continue with the same, or begin another"
        )
    if found.config is None:
        logger.info("the checkpoint is of an older version, which kept no settings to compare")
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
            f"{folder}{manifests}; continue with {same_batches(other_ranks, ranks)}, or with "
            "--change-schedule go on with these"
        )
    done, epochs = found.progress.epoch, int(config.training.epochs)
    if done > epochs:
        raise ConfigError(f"--resume: training.epochs {epochs}, but {done} epochs are done already")
    for change in changed:
        logger.info("changed at step %d: %s", found.progress.step, change)
    if changed and found.progress.batch:
        logger.info("where the order of batches is another, some utterances of this epoch come "
                    "twice and some not at all")  # fmt: skip


def changed_utterances(
    others: Set[str], stored: Mapping[str, Any], config: Config
) -> tuple[list[str], str]:
    """The changed parts of both sets, and an addition to a message: the manifests they are in.

    Args:
        others: names of the hashes that are not the stored ones.
        stored: hashes of the checkpoint; older ones have none of ids, texts and audio.
        config: of the training that resumes.
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
            manifests.append(f"{SETS[name]} {getattr(config.data, SETS[name].partition('.')[2])}")
    return changed, f" ({', '.join(manifests)})" if manifests else ""


def settings(config: dict[str, Any], ranks: int) -> dict[str, Any]:
    """The settings of the schedule, by dotted key."""
    found = {key: value for key, value in dotted(config) if key not in FREE}
    batches = found.pop(BATCHES, None)
    return found if batches is None else found | {TOTAL: batches * ranks}


def same_batches(total: int, ranks: int) -> str:
    """What continues a training of `total` batches a step with another number of ranks.

    "the same" if total is 0.
    """
    if not total:
        return "the same"
    if total % ranks:
        return f"a number of ranks that divides the {total} batches of a step"
    return f"{BATCHES}={total // ranks} on {ranks} ranks"


def dotted(section: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested sections with their dotted keys."""
    for name, value in section.items():
        if isinstance(value, dict):
            yield from dotted(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
