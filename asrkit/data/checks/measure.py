"""Readers that turn manifests into facts. Bad lines become findings; unreadable audio is a fact."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from asrkit import audio
from asrkit.audio.files import AudioFile, AudioInfo, block_size, opened
from asrkit.audio.samples import mix_db, no_channel
from asrkit.data.checks.facts import Facts, Finding, Signal
from asrkit.data.inputs import read_recordings
from asrkit.data.manifest import ManifestError, invalid_line, read_lines
from asrkit.data.recording import Recording

FULL_SCALE = 0.99  # 8-bit audio ends at 0.992
BLOCK_SECONDS = 30.0  # limits the memory for an hour of audio
FRAME_S = 0.05  # seconds of audio per level
LOUD_FRAMES = 5  # the loudness of a recording is the level of its fifth loudest frame
QUIET_DB, QUIETEST = -30.0, 1e-4  # quiet levels: below the loudness; amplitude in any recording


def read_entries(path: str, bad_lines: list[Finding]) -> list[Facts]:
    """Read a manifest or the index of shards, but no audio; append findings of bad lines."""
    if Path(path).is_dir():
        return [Facts(path, *each) for each in enumerate(read_recordings(path, []), start=1)]
    entries, bad = [], len(bad_lines)
    for number, each in read_lines(Path(path)):
        if isinstance(each, str):
            where = (path, number, "", each)
            bad_lines.append(Finding("line", "error", "lines that are not an utterance", *where))
        else:
            entries.append(Facts(path, number, each))
    if not entries and len(bad_lines) == bad:
        raise ManifestError(f"{path} is empty: a manifest has one utterance per line")
    return entries


def valid_entries(path: str) -> list[Facts]:
    """Return the utterances of a manifest; reject a manifest with invalid lines."""
    bad: list[Finding] = []
    entries = read_entries(path, bad)
    if bad:
        raise invalid_line(path, bad[0].line, bad[0].message)
    return entries


def inspect_all(
    entries: Iterable[Facts], jobs: int | None = None, decode: bool = True, window: int = 64
) -> Iterator[Facts]:
    """Yield the facts of all utterances, in order, read by `jobs` threads; None: one a core."""
    entries, jobs = iter(entries), jobs or os.cpu_count() or 1
    with ThreadPoolExecutor(jobs) as pool:
        while part := list(islice(entries, window * jobs)):
            yield from pool.map(partial(inspect, decode=decode), part)


def inspect(entry: Facts, decode: bool = True) -> Facts:
    """Return the facts of an utterance, from its audio or the error in reading the audio."""
    try:
        with opened(entry.utterance.source(), entry.utterance.track) as file:
            entry = entry._replace(
                header=AudioInfo(file.sample_rate, file.count(), file.num_channels)
            )
            if decode:
                signal = measure(_blocks(file, entry.utterance), file.sample_rate)
                entry = entry._replace(signal=signal)
            return entry._replace(notes=tuple(file.problems))
    except audio.AudioError as error:
        return entry._replace(problem=str(error))


def _blocks(file: AudioFile, utterance: Recording) -> Iterator[np.ndarray]:
    """Yield the samples (n, channels) of an utterance that are inside the file.

    Unlike `audio.blocks`, a part outside the file is not an error here: a check reports it.
    """
    rate, start, end = file.sample_rate, utterance.start or 0.0, file.count()
    first = round(min(start * rate, end))
    if utterance.duration is not None:
        end = round(min((start + utterance.duration) * rate, end))
    channel = utterance.channel
    if channel is not None and channel >= file.num_channels:
        raise no_channel(file.name, channel, file.num_channels)
    for block in file.blocks(block_size(file, BLOCK_SECONDS), first, end - first):
        yield block if channel is None else block[:, [channel]]


def measure(blocks: Iterable[np.ndarray], rate: int) -> Signal | None:
    """Measure one recording, given as blocks (n, channels) at `rate` Hz; None without samples."""
    digest = hashlib.blake2b(digest_size=16)
    low, high, total, squares = float("inf"), -float("inf"), 0.0, 0.0
    frames = size = clipped = not_finite = 0
    levels = Levels(rate)
    channels: np.ndarray | float = 0.0  # energy of each channel
    for block in blocks:
        digest.update(block.tobytes())
        finite = np.isfinite(block)
        if not finite.all():
            not_finite += int(np.count_nonzero(~finite))
            block = np.where(finite, block, np.float32(0))
        clipped += in_runs(np.abs(block) >= FULL_SCALE)
        mono = block.mean(axis=1, dtype=np.float64)  # the same mix as in training
        channels = channels + np.square(block, dtype=np.float64).sum(axis=0)
        low, high = min(low, float(mono.min())), max(high, float(mono.max()))
        total, squares = total + float(mono.sum()), squares + float(mono @ mono)
        levels.add(mono)
        frames, size = frames + len(block), size + block.size
    if not frames:
        return None
    mean = total / frames
    return Signal(
        seconds=frames / rate,
        peak=(high - low) / 2,
        rms=max(0.0, squares / frames - mean**2) ** 0.5,
        mean=mean,
        clipped=clipped / size,
        not_finite=not_finite,
        mix_db=mix_db(squares, channels),
        digest=digest.digest(),
        quiet=levels.quiet(),
    )


def in_runs(high: np.ndarray) -> int:
    """Count the true values (n, channels) in runs of three or more samples of a channel."""
    if not high.any():
        return 0
    threes = high[:-2] & high[1:-1] & high[2:]
    inside = np.zeros_like(high)
    for shift in range(3):
        inside[shift : len(high) - 2 + shift] |= threes
    return int(np.count_nonzero(inside))


class Levels:
    """The levels of one recording's mono samples."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.frame = max(1, round(FRAME_S * rate))
        self.rest = np.zeros(0)  # samples of an incomplete frame
        self.levels: list[np.ndarray] = []  # mean squares

    def add(self, samples: np.ndarray) -> None:
        """Measure the next samples (n,)."""
        waiting = np.concatenate([self.rest, samples])
        count = len(waiting) // self.frame * self.frame
        frames, self.rest = waiting[:count].reshape(-1, self.frame), waiting[count:]
        self.levels.append(np.square(frames - frames.mean(axis=1, keepdims=True)).mean(axis=1))

    def quiet(self) -> tuple[float, float]:
        """Return the start and the end in seconds of the longest quiet stretch."""
        levels = np.sqrt(np.concatenate([np.zeros(0), *self.levels]))
        if not len(levels):
            return 0.0, 0.0
        loud = float(np.sort(levels)[-min(LOUD_FRAMES, len(levels))])
        still = levels < max(loud * 10 ** (QUIET_DB / 20), QUIETEST)
        steps = np.flatnonzero(np.diff(still.astype(np.int8), prepend=0, append=0))
        if not len(steps):
            return 0.0, 0.0
        first, last = max(zip(steps[::2], steps[1::2], strict=True), key=lambda s: s[1] - s[0])
        return float(first * self.frame / self.rate), float(last * self.frame / self.rate)
