"""The index of a corpus in shards: the place, duration, rate and text length of each utterance.

An index is a folder of three files (docs/formats.md). `rows.bin` has a row of numbers for each
utterance, `lines.jsonl` has its lhotse cut as JSON, `index.json` has the state of the source files.
Rows are mapped into memory, so that all ranks of a machine share them.
"""

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pydantic
from lhotse.cut import Cut
from lhotse.serialization import deserialize_item
from pydantic import BaseModel, ConfigDict, Field

from asrkit.audio import AudioError
from asrkit.audio.samples import MAX_RATE, MAX_SECONDS, MIN_RATE
from asrkit.data.cuts import inert, objects
from asrkit.data.manifest import MAX_LINE, LeftOut, ManifestError
from asrkit.data.storage import Folder, Stamp
from asrkit.errors import shown

ROW = np.dtype([
    ("line", "<u8"), ("line_size", "<u4"),  # bytes of lines.jsonl
    ("shard", "<i4"),  # in `Description.shards`; -1: the line names an audio file
    ("offset", "<u8"), ("size", "<u4"),  # bytes of the shard
    ("duration", "<f8"), ("rate", "<u4"),  # seconds, Hz
    ("text", "<u4"),  # characters
])  # fmt: skip
HEADER = tarfile.BLOCKSIZE  # bytes before a member of a tar
MAX_MEMBER = 1 << 30  # bytes of an utterance's audio
PIECE = 1 << 20  # rows that are checked at a time
ROWS, LINES, DESCRIPTION = "rows.bin", "lines.jsonl", "index.json"
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Description(BaseModel):
    """The contents of `index.json`."""

    model_config = ConfigDict(extra="forbid")

    format_version: Literal[1] = 1
    files: dict[str, Stamp]  # source files, by name in the folder of the corpus
    shards: list[str]  # the tars among `files`
    count: int  # number of utterances
    rows_sha256: Digest
    lines_sha256: Digest
    lines_size: int
    left_out: list[tuple[str, str]]  # id and reason of utterances that could not be indexed


class Index(NamedTuple):
    """An index that matches its corpus, open for reading."""

    corpus: str  # the user's name of the corpus
    folder: Folder  # folder of the corpus
    place: Path  # folder of the index
    description: Description
    rows: np.ndarray  # (n,) of ROW
    lines: Stamp  # state of lines.jsonl when it was opened

    @property
    def left_out(self) -> list[LeftOut]:
        return [LeftOut(*each) for each in self.description.left_out]

    def values(self, number: int) -> dict[str, Any]:
        """Return the cut of an utterance as JSON."""
        row, folder = self.rows[number], Folder(str(self.place))
        try:
            if folder.stamp(LINES) != self.lines:
                raise OSError(f"{LINES} has changed")
            values = json.loads(folder.read(LINES, int(row["line"]), int(row["line_size"])))
            if not isinstance(values, dict) or not isinstance(values.get("id"), str):
                raise ValueError("not a cut with an id")
        except (OSError, ValueError, RecursionError) as error:
            raise self.damaged(number, error) from None
        return values

    def text(self, number: int) -> str:
        texts = (part.get("text") for part in objects(self.values(number)))
        return " ".join(each for each in texts if isinstance(each, str) and each)

    def described(self, number: int) -> Cut:
        """Return an utterance without its audio, which may be in a shard."""
        row, values = self.rows[number], self.values(number)
        try:
            cut = inert(deserialize_item(values), self.corpus)
            if cut.duration != row["duration"] or cut.sampling_rate != row["rate"]:
                raise ValueError(f"has {cut.duration} s")
        except Exception as error:  # lhotse raises many types
            raise self.damaged(number, error) from None
        return cut

    def damaged(self, number: int, error: Exception) -> ManifestError:
        return ManifestError(
            f"{self.place}: line {number + 1} was changed or damaged ({shown(error, 200)}); "
            "delete this folder to rebuild the index"
        )

    def read(self, number: int) -> Cut:
        """Return an utterance with its audio."""
        cut, row = self.described(number), self.rows[number]
        if row["shard"] >= 0:
            cut.recording.sources[0].source = self.member(row)
        return cut

    def member(self, row: np.void) -> bytes:
        """Read the audio of a row from its shard, after a check of the tar member's header."""
        name = self.description.shards[row["shard"]]
        where = shown(Path(self.corpus) / name, 300)
        offset, size = int(row["offset"]), int(row["size"])
        try:
            if self.folder.is_local and self.folder.stamp(name) != self.description.files[name]:
                raise AudioError(f"{where} has changed since it was indexed, see docs/training.md")
            found = self.folder.read(name, offset - HEADER, HEADER + size)
            header = tarfile.TarInfo.frombuf(found[:HEADER], "utf-8", "surrogateescape")
            if header.size != size or header.type not in tarfile.REGULAR_TYPES:
                raise AudioError(f"{where}: the file at byte {offset} is not the indexed one")
        except FileNotFoundError:
            raise AudioError(f"{where} is missing") from None
        except (OSError, tarfile.HeaderError) as error:
            raise AudioError(
                f"{where} cannot be read at byte {offset}: {shown(error, 200)}"
            ) from None
        return found[HEADER:]


def opened_index(corpus: str, folder: Folder, place: Path) -> Index:
    try:
        description = Description.model_validate_json((place / DESCRIPTION).read_bytes())
        check_description(description, place)
        rows = np.memmap(place / ROWS, ROW, "r") if description.count else np.zeros(0, ROW)
        check_rows(rows, description)
    except (OSError, ValueError) as error:
        told = error.errors()[0]["msg"] if isinstance(error, pydantic.ValidationError) else error
        raise ManifestError(
            f"{place} is not an index of {corpus}: {shown(str(told), 300)}; delete this folder to "
            "rebuild the index"
        ) from None
    return Index(corpus, folder, place, description, rows, Folder(str(place)).stamp(LINES))


def check_description(description: Description, place: Path) -> None:
    """Raise ValueError for names that are not plain file names, and for wrong sizes."""
    for name in description.files:
        if Path(name).name != name or "\0" in name:
            raise ValueError(f"{shown(name)} is not a plain file name")
        if not 0 <= description.files[name].size < 2**62:
            raise ValueError(f"{shown(name)} has {shown(description.files[name].size)} bytes")
    if unknown := set(description.shards) - description.files.keys():
        raise ValueError(f"the size of the shard {shown(min(unknown))} is missing")
    sizes = {LINES: description.lines_size, ROWS: description.count * ROW.itemsize}
    for name, size in sizes.items():
        if (found := (place / name).stat().st_size) != size:
            raise ValueError(f"{name} must have {shown(size)} bytes, got {found}")


def check_rows(rows: np.ndarray, description: Description) -> None:
    """Raise ValueError for rows that point outside their files, or have impossible values."""
    found = hashlib.sha256()
    sizes = np.array([description.files[name].size for name in description.shards] or [0])
    for start in range(0, len(rows), PIECE):
        piece = np.array(rows[start : start + PIECE])
        found.update(piece.tobytes())
        line, offset = piece["line"].astype(np.int64), piece["offset"].astype(np.int64)
        shard, size = piece["shard"], piece["size"].astype(np.int64)
        in_shard = shard >= 0
        known = (shard >= -1) & (shard < len(description.shards))
        ends = sizes[np.where(in_shard & known, shard, 0)]
        fine = {
            "a line": (piece["line_size"] <= MAX_LINE)
            & inside(line, piece["line_size"], description.lines_size),
            "a shard": known,
            "an offset": ~in_shard | ((offset >= HEADER) & inside(offset, size, ends)),
            "a size": ~in_shard | ((size > 0) & (size <= MAX_MEMBER)),
            "a duration": (piece["duration"] > 0) & (piece["duration"] <= MAX_SECONDS),
            "a sample rate": (piece["rate"] >= MIN_RATE) & (piece["rate"] <= MAX_RATE),
        }  # fmt: skip
        for what, right in fine.items():
            if not right.all():
                raise ValueError(f"row {start + int(np.argmin(right))} has {what} out of bounds")
    if found.hexdigest() != description.rows_sha256:
        raise ValueError(f"{ROWS} was changed or damaged")


def inside(start: np.ndarray, size: np.ndarray, end: np.ndarray | int) -> np.ndarray:
    """Return whether these parts lie in their files; `start + size` alone could overflow."""
    return (start >= 0) & (start <= end) & (start + size <= end)
