"""Readers that turn manifests into facts. Bad lines become findings; unreadable audio is a fact."""

import hashlib
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from asrkit import audio
from asrkit.audio.files import AudioFile, AudioInfo, block_size, opened
from asrkit.audio.samples import mix_db, no_channel
from asrkit.data.checks.facts import Check, Facts, Finding, Signal
from asrkit.data.inputs import in_threads, read_recordings
from asrkit.data.manifest import ManifestError, invalid_line, read_lines
from asrkit.data.recording import Recording

FULL_SCALE = 0.99  # 8-bit audio ends at 0.992
BLOCK_SECONDS = 30.0  # limits the memory for an hour of audio
LINE = Check(
    "line", "error", "lines that are not an utterance", lambda facts, rules: (),
    "write one JSON object a line with id, audio and text, or use asrkit data import",
)  # fmt: skip


def read_entries(path: str, bad_lines: list[Finding]) -> list[Facts]:
    """Read a manifest or the index of shards, but no audio; append findings of bad lines."""
    if Path(path).is_dir():
        return [Facts(path, *each) for each in enumerate(read_recordings(path), start=1)]
    entries, bad = [], len(bad_lines)
    for number, each in read_lines(Path(path)):
        if isinstance(each, str):
            bad_lines.append(Finding(LINE, path, number, "", each))
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


def inspect_all(entries: Iterable[Facts], decode: bool = True) -> Iterator[Facts]:
    """Yield the facts of all utterances, in order."""
    yield from in_threads(partial(inspect, decode=decode), entries)


def inspect(entry: Facts, decode: bool = True) -> Facts:
    """Return the facts of an utterance, from its audio or the error in reading the audio."""
    try:
        with opened(entry.utterance.source(), entry.utterance.track) as file:
            entry.utterance.check_rate(file.sample_rate)
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
    rate, channel = file.sample_rate, utterance.channel
    if channel is not None and channel >= file.num_channels:
        raise no_channel(file.name, channel, file.num_channels)
    count = None if utterance.duration is None else round(utterance.duration * rate)
    first = round((utterance.start or 0.0) * rate)
    for block in file.blocks(block_size(file, BLOCK_SECONDS), first, count):
        yield block if channel is None else block[:, [channel]]


def measure(blocks: Iterable[np.ndarray], rate: int) -> Signal | None:
    """Measure one recording, given as blocks (n, channels) at `rate` Hz; None without samples.

    Raises:
        AudioError: for samples that training refuses.
    """
    digest = hashlib.blake2b(digest_size=16)
    total = squares = 0.0
    frames = size = clipped = 0
    channels: np.ndarray | float = 0.0  # energy of each channel
    for block in blocks:
        digest.update(block.tobytes())
        clipped += int(np.count_nonzero(np.abs(block) >= FULL_SCALE))
        mono = audio.mono(block).astype(np.float64)  # the same mix as in training
        channels = channels + np.square(block, dtype=np.float64).sum(axis=0)
        total, squares = total + float(mono.sum()), squares + float(mono @ mono)
        frames, size = frames + len(block), size + block.size
    if not frames:
        return None
    return Signal(
        seconds=frames / rate,
        rms=max(0.0, squares / frames - (total / frames) ** 2) ** 0.5,
        clipped=clipped / size,
        digest=digest.digest(),
        mix_db=mix_db(squares, channels),
    )
