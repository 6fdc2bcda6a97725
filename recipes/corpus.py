"""Functions of all recipes: errors of one line, the command line, checked manifests."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import soundfile

from asrkit.data.splits import write_splits

KEYS = ("id", "audio", "duration", "text", "speaker")
Utterance = dict[str, Any]  # one line of a manifest; its audio is an absolute path
Splits = dict[str, list[Utterance]]


class RecipeError(Exception):
    """A user's mistake; printed as one line, without a traceback."""


@contextmanager
def explain(problem: str, remedy: str) -> Iterator[None]:
    """Turn any exception of the block into a RecipeError of one line that says what to do."""
    try:
        yield
    except Exception as error:  # archives and audio raise a dozen unrelated types
        reason = str(error) or type(error).__name__
        raise RecipeError(f"{problem} ({reason}): {remedy}") from error


def prepare(
    name: str, about: str, read: Callable[[Path, Path], Splits], argv: Sequence[str] | None = None
) -> int:
    """Run the command line of a recipe that reads an unpacked corpus; return the exit code.

    Args:
        about: help of --data-dir.
        read: function of --data-dir and --output-dir that returns the utterances.
    """
    parser = argparse.ArgumentParser(f"recipes/{name}/prepare.py")
    parser.add_argument("--output-dir", type=Path, required=True, help="folder of the manifests")
    parser.add_argument("--data-dir", type=Path, help=f"{about} (default: beside --output-dir)")
    args = parser.parse_args(argv)
    output = args.output_dir.resolve()
    try:
        write_manifests(read((args.data_dir or output.parent).resolve(), output), output)
    except (RecipeError, OSError) as error:
        return refused(name, error)
    return 0


def refused(name: str, error: Exception, script: str = "prepare") -> int:
    """Print an error in one line; return the exit code."""
    print(f"recipes/{name}/{script}.py: error: {' '.join(str(error).split())}", file=sys.stderr)
    return 2


def audio_seconds(path: Path) -> float:
    """Return the duration of an audio file, by its header."""
    with explain(f"cannot read audio file {path}", "get a whole copy of the corpus"):
        return round(soundfile.info(path).duration, 4)


def read_prepared(path: Path) -> list[Utterance]:
    """Return the utterances of the manifest of a prepared corpus."""
    with explain(f"cannot read {path}", "prepare the corpus again"):
        lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        rows = [{key: line[key] for key in KEYS} for line in lines]
        return [row | {"audio": path.parent / row["audio"]} for row in rows]


def write_manifests(splits: Splits, folder: Path) -> None:
    """Check ids and texts, write all manifests or none, and print their sizes."""
    seen: set[str] = set()
    for split, rows in splits.items():
        if not rows:
            raise RecipeError(f"the {split} split is empty or missing: get a whole copy")
        for row in rows:
            if row["id"] in seen or not row["text"].strip():
                raise RecipeError(f"{split}: id {row['id']} comes twice or has no text: correct it")
            seen.add(row["id"])
    write_splits(splits, folder)
    width = max(map(len, ["split", *splits]))
    print(f"{'split':{width}}  utterances   hours  speakers")
    for split, rows in splits.items():
        hours = sum(row["duration"] for row in rows) / 3600
        speakers = len({row["speaker"] for row in rows})
        print(f"{split:{width}}{len(rows):12}{hours:8.3f}{speakers:10}")
