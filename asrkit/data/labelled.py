"""Recordings with their texts: the input of a command, from files and all kinds of manifests."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from asrkit import audio
from asrkit.audio.files import SUFFIXES, opened
from asrkit.audio.samples import channel_name
from asrkit.data.manifest import LeftOut, is_lhotse, read_manifest, refuse_foreign
from asrkit.errors import UserError, shown

if TYPE_CHECKING:  # imported when first used: plain manifests are read without lhotse
    from lhotse.cut import Cut

logger = logging.getLogger(__name__)

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


def jobs_of(
    files: Sequence[str],
    manifest: str | None,
    left_out: list[LeftOut],
    channel: int | Literal["split"] | None = None,
    track: int | None = None,
    speakers: Sequence[str] = (),
) -> list[Labelled]:
    """Return the jobs for files, then those for a manifest.

    Args:
        channel: number of the channel of each file, from 0; None for the mean of all; "split" for a
            job per channel.
        speakers: names of the speakers of "split", one for each channel; () for numbers.
    """
    jobs: list[Labelled] = []
    for path in found(files, left_out):
        if channel != "split":
            jobs.append(Labelled(as_text(path), path, channel=channel, track=track))
            continue
        try:
            with opened(path, track) as file:
                count = file.num_channels
        except UserError as error:
            left_out.append(LeftOut(as_text(path), str(error)))
            continue
        if speakers and len(speakers) != count:
            why = f"has {count} channels, but there are {len(speakers)} speakers"
            left_out.append(LeftOut(as_text(path), why))
            continue
        name = as_text(path)
        jobs += [
            Labelled(name, path, channel=number, track=track, speaker=speaker)
            for number, speaker in enumerate(speakers or map(channel_name, range(count)))
        ]
    if manifest:
        jobs += read_labelled(manifest, left_out)
    return jobs


def found(paths: Sequence[str], left_out: list[LeftOut]) -> Iterator[str]:
    """Yield the paths of files, and of the audio files in folders and their subfolders, sorted.

    The ending of a name in a folder tells whether the file is audio. A warning names the other
    files. Hidden files and folders are not searched. Folders without audio are appended to
    `left_out`.
    """
    for path in paths:
        if not Path(path).is_dir():
            yield path
            continue
        inside = [each for each in sorted(Path(path).rglob("*")) if is_visible(each, Path(path))]
        sound = [each for each in inside if each.suffix.lower() in SUFFIXES]
        if not sound:
            left_out.append(LeftOut(as_text(path), "has no file whose name ends like audio"))
        elif others := [each for each in inside if each.suffix.lower() not in SUFFIXES]:
            named = ", ".join(map(shown, others[:3])) + (" …" if len(others) > 3 else "")
            logger.warning(
                "%d of %d files in %s are left out, because their names do not end like audio: %s",
                len(others), len(inside), shown(Path(path)), named,
            )  # fmt: skip
        yield from map(str, sound)


def is_visible(path: Path, folder: Path) -> bool:
    """Return whether a path in a folder is a file, and no part of it below the folder is hidden."""
    below = path.relative_to(folder).parts
    return path.is_file() and not any(part.startswith(".") for part in below)


def as_text(path: str) -> str:
    """Return a path as text, with escapes for bytes that are not UTF-8."""
    return path.encode("utf-8", "backslashreplace").decode()


def timed(
    blocks: Iterable[tuple[np.ndarray, int]], read: Callable[[float], object]
) -> Iterator[tuple[np.ndarray, int]]:
    """Yield the blocks; call `read` with the seconds of each."""
    for block, rate in blocks:
        read(len(block) / rate)
        yield block, rate
