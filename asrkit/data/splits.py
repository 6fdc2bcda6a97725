"""Division of a corpus into train, dev and test, and their manifests."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from asrkit.atomic_write import replacing

NAMES = ("train", "dev", "test")
OTHER_NAMES = {"validation": "dev", "valid": "dev"}
MOST_OF_TARGET = 1.25  # share of the wanted seconds that dev may have
Row = dict[str, Any]  # a line of a manifest; "split" names the corpus's own part
Splits = dict[str, list[Row]]


def split_of(path: Path) -> str | None:
    """Return train, dev or test by the names of a path, such as validation-00000-of-00001."""
    words = (re.split(r"[-_.]", part)[0] for part in path.parts)
    found = (OTHER_NAMES.get(word, word) for word in words)
    return next((word for word in found if word in NAMES), None)


def divide(rows: list[Row], share: float, warn: Callable[[str], object]) -> Splits:
    """Divide utterances into the corpus's own parts, or by speaker: dev has a share of the seconds.

    The result does not depend on the order of the utterances.
    """
    splits: Splits = {}
    for row in rows:
        own = {key: value for key, value in row.items() if key != "split"}
        splits.setdefault(row.get("split", "train"), []).append(own)
    train = splits.get("train", [])
    if share and train and "dev" not in splits:
        splits["train"], splits["dev"] = taken(train, share, warn)
    return {name: splits[name] for name in NAMES if splits.get(name)}


def taken(
    rows: list[Row], share: float, warn: Callable[[str], object]
) -> tuple[list[Row], list[Row]]:
    """Return utterances for train and for dev, which share no speaker and no file if possible."""
    groups: Sequence[Hashable | None] = voices_of(rows)
    without = groups.count(None)
    if len({*groups} - {None}) < 2:
        known = "no speaker is known"
        if without < len(rows):
            known = "all utterances have one speaker, or speakers who share recordings"
        first: dict[Hashable, str] = {}  # audio -> an id, which is the same wherever it lies
        for row in sorted(rows, key=lambda row: str(row["id"]), reverse=True):
            first[row["audio"]] = row["id"]
        by = "recording" if len(first) > 1 else "utterance"
        warn(f"{known}: dev is split by {by}, and its scores do not predict those of new voices")
        groups = [first[row["audio"]] if len(first) > 1 else row["id"] for row in rows]
    elif without:
        warn(f"{without} utterances without a speaker are in train")
    seconds: dict[Hashable, float] = {}
    pairs = [*zip(rows, groups, strict=True)]
    for row, group in pairs:
        if group is not None:
            seconds[group] = seconds.get(group, 0.0) + row["duration"]
    dev = chosen(seconds, share)
    return [row for row, its in pairs if its not in dev], [row for row, its in pairs if its in dev]


def voices_of(rows: list[Row]) -> list[str | None]:
    """Return the group of each row that stays together: the first name of its speakers, or None.

    Speakers who occur in one recording are in one group.
    """
    above: dict[str, str] = {}  # a speaker -> an earlier name of the group

    def first(name: str) -> str:
        while above.setdefault(name, name) != name:
            name = above[name]
        return name

    in_file: dict[Hashable, str] = {}
    for row in rows:
        if speaker := row.get("speaker"):
            other = in_file.setdefault((row["audio"], row.get("first_byte")), speaker)
            one, two = sorted((first(speaker), first(other)))
            above[two] = one
    return [first(row["speaker"]) if row.get("speaker") else None for row in rows]


def chosen(seconds: Mapping[Hashable, float], share: float) -> set[Hashable]:
    """Choose groups that have about a share of all seconds together, at least one, never all."""
    target, total = share * sum(seconds.values()), 0.0
    found: set[Hashable] = set()
    for name in sorted(seconds, key=_scattered):
        if total < target and total + seconds[name] <= MOST_OF_TARGET * target:
            found.add(name)
            total += seconds[name]
    if not found and len(seconds) > 1:
        found.add(min(seconds, key=lambda name: (seconds[name], str(name))))
    return found


def _scattered(name: Hashable) -> bytes:
    """Return a key that sorts names like a random order, the same in every run."""
    return hashlib.blake2b(str(name).encode(errors="surrogatepass"), digest_size=8).digest()


def write_splits(splits: Mapping[str, list[Row]], folder: Path) -> None:
    """Write a manifest for each split, or none; audio paths are written as they are."""
    with ExitStack() as stack:
        for name, rows in splits.items():
            temporary = stack.enter_context(replacing(folder / f"{name}.jsonl"))
            with temporary.open("w", encoding="utf-8") as file:
                for row in rows:
                    file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")


def from_folder(audio: str, folder: Path) -> str:
    """Return an absolute path relative to a manifest's folder, if both have the same parent.

    Paths in or beside the folder become relative, so that both can be moved together.
    """
    folder = folder.resolve()
    found = Path(audio)
    place = found.parent.resolve()
    if place == folder.parent or not place.is_relative_to(folder.parent):
        return audio
    return os.path.relpath(place / found.name, folder)


def totals(rows: list[Row]) -> str:
    """Return the numbers of utterances, hours and speakers of a split."""
    seconds = sum(row["duration"] for row in rows)
    length = f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.2f} h"
    speakers = len({row.get("speaker") for row in rows} - {None})
    known = f"{speakers} speaker{'' if speakers == 1 else 's'}"
    return f"{len(rows)} utterance{'' if len(rows) == 1 else 's'}, {length}, {known}"
