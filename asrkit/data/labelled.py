"""Recordings with their texts, from files and from all kinds of manifests."""

import hashlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from asrkit import audio
from asrkit.data.manifest import LeftOut, is_lhotse, read_manifest, refuse_foreign

if TYPE_CHECKING:  # imported when first used: plain manifests are read without lhotse
    from lhotse.cut import Cut

PIECE_SECONDS = 60.0  # seconds of a recording that are read at a time


class Labelled(NamedTuple):
    """A recording, or a part of a recording, with its text if known; audio is read on demand."""

    id: str  # name of the recording, unique in most manifests
    path: str  # audio file, or MANIFEST#ID for audio that `cut` reads
    text: str | None = None  # transcript, or None
    start: float = 0.0  # seconds of the file before the part
    duration: float | None = None  # seconds of the part; None for the rest of the file
    channel: int | None = None  # number of the channel, from 0; None for the mean of all
    # Number of the audio track in a container, from 0; None for the default track.
    track: int | None = None
    speaker: str | None = None  # name of the speaker, or None
    # Function that returns a cut which only lhotse can load: mixed, transformed, in memory or in a
    # shard.
    cut: "Callable[[], Cut] | None" = None
    digest: str = ""  # hash of the description of this cut

    def blocks(self) -> Iterator[tuple[np.ndarray, int]]:
        """Yield mono samples (n,) of at most PIECE_SECONDS, and the sample rate in Hz."""
        if self.cut is None:
            yield from audio.mono_blocks(
                self.path, PIECE_SECONDS, self.start, self.duration, self.channel, self.track
            )
            return
        samples, size = self.load(), round(PIECE_SECONDS * audio.SAMPLE_RATE)
        for first in range(0, len(samples), size):
            yield samples[first : first + size], audio.SAMPLE_RATE

    def load(self) -> np.ndarray:
        """Return all samples (n,) in float32 at 16 kHz."""
        if self.cut is None:
            return audio.load(self.path, self.start, self.duration, self.channel, self.track)
        from asrkit.data.cut_audio import load_samples

        return load_samples(self.cut())


def read_labelled(path: str, left_out: list[LeftOut]) -> Iterator[Labelled]:
    """Yield the recordings of a plain manifest, of lhotse's cuts or of a folder of shards.

    Unusable ones are appended to `left_out`.
    """
    if not is_lhotse(Path(path)):
        for u in read_manifest(path, left_out):
            yield Labelled(
                u.id, u.audio, u.text, u.start or 0.0, u.duration, u.channel, speaker=u.speaker
            )
        return
    from asrkit.data.cuts import load_cuts
    from asrkit.data.index_writer import index_of

    if not Path(path).is_dir():
        for cut in load_cuts(path, left_out):
            yield of_cut(cut, path, partial(lambda cut: cut, cut))
        return
    refuse_foreign(Path(path))
    index = index_of(path)
    left_out += index.left_out
    for number in range(len(index.rows)):
        yield of_cut(index.described(number), path, partial(index.read, number))


def of_cut(cut: "Cut", manifest: str, read: "Callable[[], Cut]") -> Labelled:
    """Convert a cut, which `read` returns with its audio; lhotse does not read parts of files."""
    from asrkit.data.cuts import has_text, part_of_file, utterance_of

    found = utterance_of(cut, manifest)
    text = found.text if has_text(cut) else None
    if part := part_of_file(cut):
        path, channel = part
        return Labelled(cut.id, path, text, cut.start, cut.duration, channel, speaker=found.speaker)
    described = json.dumps(cut.to_dict(), default=_hashed, sort_keys=True)
    return Labelled(
        cut.id, found.audio, text, duration=cut.duration, speaker=found.speaker, cut=read,
        digest=_hashed(described.encode(errors="surrogatepass")),
    )  # fmt: skip


def _hashed(value: bytes) -> str:
    """Hash audio in memory, which JSON cannot contain."""
    return hashlib.blake2b(value, digest_size=16).hexdigest()
