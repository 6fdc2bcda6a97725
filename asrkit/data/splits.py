"""Division of a corpus into train, dev and test, and their manifests."""

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from asrkit.atomic_write import flush, replacing
from asrkit.data.corpora.entry import Ids
from asrkit.errors import shown

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


def with_roles(rows: list[Row], warn: Callable[[str], object]) -> list[Row]:
    """Return the rows with a speaker for each file and role.

    A role, such as agent or customer, is a speaker who occurs beside others in most files.
    """
    files = _grouped((row["audio"], row["speaker"]) for row in rows if row.get("speaker"))
    places = Counter(name for names in files.values() if len(names) > 1 for name in names)
    roles = [name for name in sorted(places) if places[name] > len(files) / 2]
    if len(files) < 2 or not roles:
        return rows
    named = ", ".join(map(shown, roles[:5]))
    warn(
        f"{named} speak in most files and are taken as roles: a speaker is a file and a role, and "
        "the same person may be in train and in dev"
    )
    ids = Ids()
    stems = {audio: ids(Path(audio)) for audio in sorted(files)}
    return [
        row | {"speaker": f"{stems[row['audio']]}-{row['speaker']}"}
        if row.get("speaker") in roles
        else row
        for row in rows
    ]


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Return the second values of each first value."""
    found: dict[str, set[str]] = {}
    for first, second in pairs:
        found.setdefault(first, set()).add(second)
    return found


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
    """Return utterances for train and for dev, which have different speakers if possible."""
    without = sum(1 for row in rows if row.get("speaker") is None)
    speakers = {row["speaker"] for row in rows if row.get("speaker") is not None}
    if len(speakers) > 1:
        if without:
            warn(f"{without} utterances without a speaker are in train")
        return _by(rows, voices_of(rows), share)
    known = "all utterances have one speaker" if speakers and not without else "no speaker is known"
    first: dict[Hashable, str] = {}  # audio -> an id, which is the same wherever the audio lies
    for row in sorted(rows, key=lambda row: str(row["id"]), reverse=True):
        first[row["audio"]] = row["id"]
    by = "recording" if len(first) > 1 else "utterance"
    warn(f"{known}: dev is split by {by}, and its scores do not predict those of new voices")
    return _by(rows, [first[row["audio"]] if len(first) > 1 else row["id"] for row in rows], share)


def voices_of(rows: list[Row]) -> list[str | None]:
    """Return the group of each row that stays together: its speaker, or a file with several.

    A file whose speakers occur in no other file is a group, named by its first speaker.
    """
    pairs = [(row["audio"], row["speaker"]) for row in rows if row.get("speaker") is not None]
    files, places = _grouped(pairs), _grouped((speaker, audio) for audio, speaker in pairs)
    first: dict[str | None, str | None] = {
        name: min(names)
        for names in files.values()
        if len(files) > 1 and all(len(places[name]) == 1 for name in names)
        for name in names
    }
    return [first.get(speaker, speaker) for speaker in (row.get("speaker") for row in rows)]


def _by(
    rows: list[Row], groups: Sequence[Hashable | None], share: float
) -> tuple[list[Row], list[Row]]:
    """Return utterances for train and for dev. Those whose group is None are in train."""
    seconds: dict[Hashable, float] = {}
    for row, group in zip(rows, groups, strict=True):
        if group is not None:
            seconds[group] = seconds.get(group, 0.0) + row["duration"]
    dev = chosen(seconds, share)
    pairs = [*zip(rows, groups, strict=True)]
    return [row for row, its in pairs if its not in dev], [row for row, its in pairs if its in dev]


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
    """Write a manifest for each split; audio paths are written as they are.

    A process that is killed leaves the old manifests, or some of the new ones, never a mixture:
    else train of one division and dev of another could have the same recordings.
    """
    with ExitStack() as stack:
        paths = [folder / f"{name}.jsonl" for name in splits]
        for path, rows in [*zip(paths, splits.values(), strict=True)][::-1]:
            temporary = stack.enter_context(replacing(path))  # the last one is renamed first
            with temporary.open("w", encoding="utf-8") as file:
                for row in rows:
                    file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
            flush(temporary)
        for path in paths[1:]:
            Path(os.path.realpath(path)).unlink(missing_ok=True)  # a link stays


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
