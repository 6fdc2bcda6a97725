"""Leaving speakers out: a corpus cut into folds by speaker, and the scores of all folds as one."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asrkit.errors import UserError
from recipes.corpus import RecipeError, Splits, read_prepared, write_manifests


def write_folds(corpus: Path, folder: Path, count: int) -> list[Path]:
    """A folder for each fold: train.jsonl without its speakers, dev.jsonl of them alone.

    Speakers are dealt out by the number of their utterances, each to the fold with the fewest so
    far: every one of them is in the dev set of one fold.

    Args:
        corpus: a prepared folder, whose train and dev sets are joined.
        folder: folder to write the folds to.

    Raises:
        UserError: for a folder that is not prepared, or fewer speakers than folds.
    """
    try:
        splits = read_prepared(corpus.resolve())
        rows = [*splits["train"], *splits["dev"]]
        if not rows:
            raise UserError(f"{corpus} is not prepared: it has no utterances")
        fold_of = dealt(Counter(row["speaker"] for row in rows), count)
        folds = [folder / f"fold{number}" for number in range(count)]
        for number, fold in enumerate(folds):
            parts: Splits = {"train": [], "dev": []}
            for row in rows:
                parts["dev" if fold_of[row["speaker"]] == number else "train"].append(row)
            write_manifests(parts, fold)
    except (RecipeError, OSError, KeyError) as error:
        raise UserError(f"cannot cut {corpus} into folds: {error}") from None
    return folds


def dealt(utterances: Counter[str], count: int) -> dict[str, int]:
    """The fold of each speaker. Raises UserError if there are fewer speakers than folds."""
    if len(utterances) < count:
        raise UserError(f"--folds {count}: there are {len(utterances)} speakers")
    sizes, fold_of = [0] * count, {}
    for speaker, size in sorted(utterances.items(), key=lambda pair: (-pair[1], pair[0])):
        fold_of[speaker] = fold = sizes.index(min(sizes))
        sizes[fold] += size
    return fold_of


def joined(folds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The scores of all folds as those of one model on all recordings.

    Args:
        folds: scores as `asrkit evaluate --format json` writes them, of other recordings each.
    """
    contexts: dict[str, Any] = {}
    for name in folds[0]["contexts"]:
        each = [fold["contexts"][name] for fold in folds]
        errors = {key: wrong for one in each for key, wrong in one["errors"].items()}
        units = sum(one["words"]["reference_units"] for one in each)
        rate = 100.0 * sum(errors.values()) / max(1, units)
        contexts[name] = {"words": {"rate": rate, "reference_units": units}, "errors": errors}
    seconds = sum(fold["training"]["wall_seconds"] for fold in folds)
    return {"contexts": contexts, "training": {"wall_seconds": seconds}}
