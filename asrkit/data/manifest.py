"""Manifests: JSON lines, each a `Recording`."""

import json
import logging
import shlex
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pydantic

from asrkit import lines
from asrkit.audio.samples import name_of
from asrkit.data.foreign import wrong_keys
from asrkit.data.recording import Recording
from asrkit.errors import UserError, no_file, printable, reason, shown

logger = logging.getLogger(__name__)

MAX_LINE = 1 << 26  # bytes
INDEX = "index.arrow"  # file of a folder of shards


class ManifestError(UserError):
    """An error in a manifest; the message names the file and the line."""


class LeftOut(NamedTuple):
    """An utterance that is not used, and the reason."""

    id: str
    reason: str

    def __str__(self) -> str:
        """Return id and reason in one printable line; the id is not repeated."""
        name, reason = name_of(self.id), printable(self.reason)
        return reason if reason.startswith(f"{name} ") else f"{name}: {reason}"


def lines_of(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a manifest or a text that are not empty, with their numbers from 1.

    Pipes and devices are rejected, because a manifest may be read twice.
    """
    path = Path(path)
    if not path.is_file():
        raise ManifestError(f"{shown(path, 300)} {no_file(path)}")
    kind = lines.LineKind("a manifest", ManifestError, MAX_LINE)
    with path.open("rb") as file:
        yield from lines.lines_in(file, str(path), kind)


def read_manifest(path: str | Path) -> Iterator[Recording]:
    """Yield the recordings of a manifest; `audio` is joined to the manifest's folder."""
    for number, each in read_lines(Path(path)):
        if isinstance(each, str):
            raise invalid_line(path, number, each)
        yield each


def invalid_line(path: str | Path, number: int, problem: str) -> ManifestError:
    """Return the error of a line that is not a recording."""
    others = f"{import_command(path)} reads other forms, and " if number == 1 else ""
    return ManifestError(
        f"{path}:{number}: {problem}; {others}asrkit data check {path} --write FILE removes such "
        "lines"
    )


def import_command(path: str | Path) -> str:
    """Return the command that turns another toolkit's file or folder into a manifest."""
    return f"asrkit data import auto {shlex.quote(printable(str(path)))} --output DIR"


def require_shards(folder: Path) -> None:
    """Reject a folder without an index of shards."""
    if not (folder / INDEX).exists():
        raise ManifestError(
            f"{shown(folder)} is not a folder of shards, which have {INDEX}: name a manifest, or "
            f"make one with {import_command(folder)}"
        )


def read_lines(path: Path) -> Iterator[tuple[int, Recording | str]]:
    """Yield the number of each line with its recording, or with what is wrong; log unused keys."""
    unused = Counter[str]()
    for number, line in lines_of(path):
        try:
            yield number, parse_line(line, path.parent, unused)
        except ValueError as error:  # not JSON, not UTF-8, or not a recording
            yield number, what_is_wrong(error)
    if unused:
        keys = ", ".join(f"{shown(key, 40)} ({n})" for key, n in unused.most_common(8))
        log_once(f"{path}: unused keys, with their numbers of lines: {keys}")


@cache
def log_once(message: str) -> None:
    """Log a warning, but only once for repeated reads of a manifest."""
    logger.warning("%s", message)


def parse_line(line: bytes, folder: Path, unused: Counter[str]) -> Recording:
    """Read the recording of a line; count unused keys. `what_is_wrong` explains a ValueError."""
    try:
        values = json.loads(line)
    except RecursionError:
        raise ValueError("not JSON: nested too deeply") from None
    except ValueError as error:  # or not UTF-8
        raise ValueError(f"not JSON: {reason(error)}") from None
    if isinstance(values, dict):
        if problem := wrong_keys(values):
            raise ValueError(problem)
        unused.update(key for key in values if key not in Recording.model_fields)
    recording = Recording.model_validate(values)
    return recording.model_copy(update={"audio": str(folder / recording.audio)})


def what_is_wrong(error: ValueError) -> str:
    if not isinstance(error, pydantic.ValidationError):
        return str(error)
    first = error.errors()[0]
    key = "".join(f"'{part}': " for part in first["loc"])
    expected = f"{first['msg'][0].lower()}{first['msg'][1:]}"
    if first["type"] == "string_unicode":
        expected = "cannot be written as UTF-8"
    return f"{key}{expected}, got {shown(first['input'])}"
