"""The input and output of the checks: facts of an utterance, rules, findings."""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from asrkit.audio.files import AudioInfo
from asrkit.data.recording import Recording
from asrkit.data.text_encoder import TextEncoder

# error: training skips the utterance, or learns something wrong. warning: usable, but suspect.
Severity = Literal["error", "warning"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning")


class Signal(NamedTuple):
    """Measurements of an utterance's samples; full scale is 1."""

    seconds: float  # seconds of readable audio
    rms: float  # root mean square around the mean
    clipped: float  # share of samples at full scale
    digest: bytes  # equal for equal samples, in any file format
    mix_db: float = 0.0  # level of the mix of the channels, see `audio.samples.mix_db`


class Facts(NamedTuple):
    """Facts of an utterance, from its manifest, its file's header, and its samples."""

    manifest: str
    line: int  # from 1
    utterance: Recording  # with `audio` relative to the working directory
    header: AudioInfo | None = None  # None if unreadable or not read
    signal: Signal | None = None  # None if unreadable or not decoded
    problem: str | None = None  # reason why the audio cannot be read
    notes: tuple[str, ...] = ()  # parts of the file that are not read, one line each

    @property
    def text(self) -> str:
        return self.utterance.text or ""

    @property
    def sample_rate(self) -> int | None:
        """The sample rate in Hz, from the file's header or the manifest; None if unknown."""
        return self.header.sample_rate if self.header else self.utterance.sample_rate

    @property
    def file_seconds(self) -> float | None:
        """The length of the whole file, from its header."""
        return self.header and self.header.num_samples / self.header.sample_rate

    @property
    def seconds(self) -> float | None:
        """The utterance's length, from samples, header or manifest; None if unknown."""
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
    """The settings that a corpus is checked against."""

    encode: TextEncoder
    min_seconds: float
    max_seconds: float


Found = Iterable[tuple[Facts, str]]  # utterances and messages


class Check(NamedTuple):
    """A function from facts to findings, with the name, severity and meaning of the findings."""

    name: str
    severity: Severity
    meaning: str
    find: Callable[[Sequence[Facts], Rules], Found]
    advice: str  # advice for users


class Finding(NamedTuple):
    """A problem that a check found in a line of a manifest."""

    check: Check
    manifest: str
    line: int
    id: str
    message: str  # has the wrong value
