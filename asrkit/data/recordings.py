"""The recordings of a training: a table of Arrow, in memory or mapped from a folder of shards."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow
from lhotse.augmentation import Speed
from pyarrow import compute

from asrkit import audio
from asrkit.atomic_write import sha256_of
from asrkit.data.inputs import read_distinct
from asrkit.data.manifest import INDEX, LeftOut, ManifestError
from asrkit.data.recording import Recording
from asrkit.data.shards import SCHEMA, open_index, recordings_at, refuse_undecodable


@dataclass(eq=False)
class Recordings:
    """Recordings with their texts, each at some speeds.

    In another process, unpickling maps the same shards there, and rejects different ones.
    """

    table: pyarrow.Table  # a row for each recording, with the columns of SCHEMA
    folder: str | None = None  # of the shards; None for a table in memory
    factors: Sequence[float] = (1.0,)  # speeds; each recording occurs at each, one after another
    kept: np.ndarray | None = None  # (n,) numbers of the recordings at a speed to use; None for all

    @cached_property
    def durations(self) -> np.ndarray:
        """The seconds (n,) of the recordings at their speeds."""
        seconds, rates = (self.table[name].to_numpy() for name in ("duration", "sample_rate"))
        at_speeds = np.stack([at_speed(seconds, rates, each) for each in self.factors], axis=1)
        return at_speeds.ravel() if self.kept is None else at_speeds.ravel()[self.kept]

    def __len__(self) -> int:
        return len(self.durations)

    def at(self, place: int) -> tuple[Recording, float]:
        """Return a recording and the factor of its speed."""
        if not 0 <= place < len(self):
            raise IndexError(place)
        number = int(place if self.kept is None else self.kept[place])
        row, speed = divmod(number, len(self.factors))
        (recording,) = recordings_at(self.table, self.folder, np.array([row]))
        return recording, self.factors[speed]

    def __iter__(self) -> Iterator[Recording]:
        numbers = np.arange(len(self)) if self.kept is None else self.kept
        rows, speeds = np.divmod(numbers, len(self.factors))
        factors = (self.factors[speed] for speed in speeds.tolist())
        found = recordings_at(self.table, self.folder, rows)
        return map(named_at, found, factors, self.durations.tolist())

    def __getitem__(self, place: int) -> Recording:
        """Return a recording with the id and the duration at its speed."""
        return named_at(*self.at(place), float(self.durations[place]))

    def load(self, place: int) -> np.ndarray:
        """Return the samples (n,) at 16 kHz of a recording at its speed."""
        return load(*self.at(place))

    @property
    def has_text(self) -> np.ndarray:
        """A mask (n,) of the recordings that have a text."""
        mask = compute.match_substring_regex(self.table["text"], r"\S").fill_null(False)
        found = np.repeat(mask.to_numpy(), len(self.factors))
        return found if self.kept is None else found[self.kept]

    @property
    def rows(self) -> np.ndarray:
        """The numbers (n,) of the recordings' rows in the table."""
        kept = np.arange(len(self)) if self.kept is None else self.kept
        return kept // len(self.factors)

    def texts(self, most: int) -> list[str]:
        """Return the texts of the recordings to use, or of `most` at equal distances."""
        rows = np.unique(self.rows)
        rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(int)]
        return [text or "" for text in self.table["text"].take(rows).to_pylist()]

    def chosen(self, mask: np.ndarray) -> "Recordings":
        """Return the recordings for which the mask (n,) is true."""
        places = np.flatnonzero(mask).astype(np.uint32)
        kept = places if self.kept is None else self.kept[places]
        return Recordings(self.table, self.folder, self.factors, kept)

    def at_speeds(self, factors: Sequence[float]) -> "Recordings":
        return Recordings(self.table, self.folder, factors)

    def update(self, digest: "hashlib._Hash", folder: str) -> None:
        """Hash ids, durations, texts and places of the audio, with paths relative to `folder`."""
        if self.folder is not None:
            digest.update(sha256_of(Path(self.folder, INDEX)).encode())
            digest.update(self.durations.tobytes())
            return
        for each in self:
            line = f"{each.id} {each.duration} {each.text or ''!r} {place_of(each, folder)!r}\n"
            digest.update(line.encode(errors="surrogatepass"))

    def __reduce__(self) -> tuple[object, ...]:
        if self.folder is None:
            return Recordings, (self.table, None, self.factors, self.kept)
        state = sha256_of(Path(self.folder, INDEX)), self.table.num_rows
        return _reopened, (self.folder, self.factors, self.kept, state)


def _reopened(
    folder: str, factors: Sequence[float], kept: np.ndarray | None, state: tuple[str, int]
) -> Recordings:
    table = open_index(folder)
    if (sha256_of(Path(folder, INDEX)), table.num_rows) != state:
        raise ManifestError(
            f"{folder} differs here from the first rank's: copy the same shards to all machines"
        )
    return Recordings(table, folder, factors, kept)


class Joined:
    """The recordings of several sets, one set after another."""

    def __init__(self, parts: Sequence[Recordings]) -> None:
        self.parts = parts
        self.ends = np.cumsum([len(part) for part in parts])
        self.durations = np.concatenate([part.durations for part in parts])

    def __len__(self) -> int:
        return int(self.ends[-1])

    def _part(self, place: int) -> tuple[Recordings, int]:
        number = int(np.searchsorted(self.ends, place, side="right"))
        return self.parts[number], place - (int(self.ends[number - 1]) if number else 0)

    def __getitem__(self, place: int) -> Recording:
        part, inside = self._part(place)
        return part[inside]

    def load(self, place: int) -> np.ndarray:
        part, inside = self._part(place)
        return part.load(inside)


def load_recordings(path: str, left_out: list[LeftOut]) -> Recordings:
    """Map a folder of shards, or read a manifest, whose bad recordings `left_out` gets."""
    if Path(path).is_dir():
        return Recordings(open_index(path), path)
    refuse_undecodable(Path(path).parent)
    rows = []
    for each in read_distinct(path):
        try:
            rows.append(each.measured().model_dump())
        except audio.AudioError as error:
            left_out.append(LeftOut(each.id, str(error)))
    return Recordings(pyarrow.Table.from_pylist(rows, SCHEMA))


def named_at(recording: Recording, factor: float, seconds: float) -> Recording:
    """Return a recording with the id and the duration at a speed."""
    if factor == 1.0:
        return recording
    changes = {"id": f"{recording.id}_sp{factor}", "duration": seconds}
    return recording.model_copy(update=changes)


def load(recording: Recording, factor: float = 1.0) -> np.ndarray:
    """Return the samples (n,) at 16 kHz of a measured recording at a speed."""
    samples, rate = recording.read()
    if factor != 1.0:
        length = round(float(at_speed(len(samples) / rate, rate, factor)) * rate)
        samples = Speed(factor)(np.ascontiguousarray(samples.T), rate).T[:length]
    return np.ascontiguousarray(audio.resample(audio.mono(samples), rate), dtype=np.float32)


def place_of(recording: Recording, folder: str) -> list[object]:
    """Return the place of a recording's audio: start, channels, path relative to `folder`."""
    channels: object = recording.channel
    if channels is None:
        channels = [*range(recording.num_channels)] if recording.num_channels > 1 else 0
    inside = [] if recording.num_bytes is None else [recording.first_byte]
    return [recording.start or 0.0, channels, os.path.relpath(recording.audio, folder), *inside]


def at_speed(durations: np.ndarray | float, rates: np.ndarray | float, factor: float) -> np.ndarray:
    """Return the durations (n,) at another speed, in whole samples, rounded like lhotse's."""
    if factor == 1.0:
        return np.array(durations)
    samples = np.floor(np.round(np.asarray(durations) * rates, 8) + 0.5)
    samples = np.round(samples / factor, 8)
    samples = np.floor(samples + 0.5) if factor > 1.0 else np.ceil(samples - 0.5)
    return samples / rates
