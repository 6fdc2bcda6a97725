"""What the checks are given, and what they give back."""

from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from asrkit.audio.io import AudioInfo
from asrkit.data.dataset import TextEncoder
from asrkit.data.manifest import Utterance

# error: training leaves it out, or learns what is not so. warning: usable, but look at it.
Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


class Signal(NamedTuple):
    """Measured over the samples of an utterance; full scale is 1."""

    seconds: float  # that could be read
    peak: float  # half of the distance from the lowest to the highest sample
    rms: float  # around the mean
    mean: float
    clipped: float  # share of the samples that stand at full scale, three or more in a row
    not_finite: int  # samples
    digest: bytes  # equal for equal samples, whatever the file format


class Facts(NamedTuple):
    """An utterance: its line of a manifest, the header of its file, its samples."""

    manifest: str
    line: int  # from 1
    utterance: Utterance  # its `audio` as a path from here
    header: AudioInfo | None = None  # None: not readable, or audio inside a lhotse manifest
    signal: Signal | None = None  # None: not readable, or not decoded
    problem: str | None = None  # why the audio cannot be read

    @property
    def text(self) -> str:
        return self.utterance.text or ""

    @property
    def file_seconds(self) -> float | None:
        """Length of the whole file, by its header."""
        return self.header and self.header.num_samples / self.header.sample_rate

    @property
    def seconds(self) -> float | None:
        """Length of the utterance, by the best of what is known; None if it cannot be read."""
        if self.problem:
            return None
        if self.signal:
            return self.signal.seconds
        start, duration = self.utterance.start or 0.0, self.utterance.duration
        if self.file_seconds is None:
            return duration
        rest = max(0.0, self.file_seconds - start)
        return rest if duration is None else min(duration, rest)


class Rules(NamedTuple):
    """What the corpus is to be used with."""

    encode: TextEncoder
    min_seconds: float
    max_seconds: float
    fastest: float  # of the speeds at which training hears an utterance


Find = TypeVar("Find")


@dataclass(frozen=True)
class Check(Generic[Find]):
    """A function from facts to findings, and what its findings are called."""

    name: str
    severity: Severity
    meaning: str
    find: Find


class Finding(NamedTuple):
    """One thing that a check found, and where."""

    check: str
    severity: Severity
    meaning: str
    manifest: str
    line: int
    id: str
    message: str  # with the value that is off

    @classmethod
    def of(cls, check: Check[Any], facts: Facts, message: str) -> "Finding":
        where = (facts.manifest, facts.line, facts.utterance.id)
        return cls(check.name, check.severity, check.meaning, *where, message)
