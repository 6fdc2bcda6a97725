"""Packer of a corpus into shards: lhotse's Shar, tars of audio beside their cuts, with an index."""

import gzip
import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from itertools import chain, count, islice
from pathlib import Path

import numpy as np
import soundfile
from lhotse import AudioSource, MonoCut, MultiCut, Recording
from lhotse.audio.utils import get_audio_duration_mismatch_tolerance as lhotse_allows
from lhotse.cut import Cut
from lhotse.utils import fastcopy
from tqdm import tqdm

from asrkit.atomic_write import new_folder
from asrkit.audio import AudioError
from asrkit.audio.files import opened
from asrkit.data.cut_audio import audio_of
from asrkit.data.cuts import part_of_file
from asrkit.data.index import MAX_MEMBER, Index
from asrkit.data.index_writer import index_of, refuse_undecodable
from asrkit.data.manifest import LeftOut, ManifestError
from asrkit.errors import UserError, shown

MAX_FLAC_CHANNELS = 8
COPIED = (".flac", ".wav", ".ogg", ".opus", ".mp3")  # formats that are read from memory


def pack(cuts: Iterable[Cut], output: Path, shard_size: int, left_out: list[LeftOut]) -> Index:
    """Write utterances with their audio into shards in a new folder, with their index.

    A file with exactly one utterance is copied. Parts of files, and formats that are not in COPIED,
    are rewritten in a lossless format. Unreadable utterances are appended to `left_out`. After an
    error the folder does not exist.
    """
    refuse_undecodable(str(output))
    if output.exists():
        raise UserError(f"the folder {shown(output)} exists already; name a new folder")
    with new_folder(output) as part:
        packed = packable(tqdm(cuts, str(output), disable=None, unit=" utt"), left_out)
        for number in count():
            first = next(packed, None)
            if first is None:
                break
            write_shard(chain([first], islice(packed, shard_size - 1)), part, f"{number:06d}")
        if not number:
            raise ManifestError(
                f"no utterance can be packed: {left_out[0] if left_out else 'the input is empty'}"
            )
        index_of(str(part))
    return index_of(str(output))


def write_shard(packed: Iterable[tuple[Cut, bytes, str]], folder: Path, number: str) -> None:
    """Write a tar of pairs of audio and JSON, and the file of the cuts."""
    with (
        tarfile.open(folder / f"recording.{number}.tar", "w") as tar,
        gzip.open(folder / f"cuts.{number}.jsonl.gz", "wb") as lines,
    ):
        for cut, audio, suffix in packed:
            recording = json.dumps(cut.recording.to_dict()).encode()
            for name, content in ((f"{cut.id}{suffix}", audio), (f"{cut.id}.json", recording)):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
            lines.write(json.dumps(cut.to_dict()).encode() + b"\n")


def packable(cuts: Iterable[Cut], left_out: list[LeftOut]) -> Iterator[tuple[Cut, bytes, str]]:
    """Yield each cut as stored in a shard, with its audio and the suffix of its format."""
    for cut in cuts:
        try:
            cut.id.encode()  # a lone surrogate cannot be in a file name
            yield copied(cut) or converted(cut)
        except (AudioError, OSError, UnicodeEncodeError, soundfile.LibsndfileError) as error:
            left_out.append(LeftOut(cut.id, str(error)))


def copied(cut: Cut) -> tuple[Cut, bytes, str] | None:
    """Return a cut that is a whole file in one of the COPIED formats, or None."""
    part = part_of_file(cut)
    if part is None or part[1] is not None:
        return None
    recording, path = cut.recording, Path(part[0])
    if (
        cut.start
        or cut.duration != recording.duration
        or path.suffix.lower() not in COPIED
        or path.stat().st_size > MAX_MEMBER
        or contradicts(path, recording)
    ):
        return None
    return fastcopy(cut, recording=in_shard(recording)), path.read_bytes(), path.suffix.lower()


def contradicts(path: Path, recording: Recording) -> bool:
    """Return whether a file's rate or length differs from its recording: a copy is unreadable."""
    with opened(path) as file:
        rate, count = file.sample_rate, file.num_samples
    others = 0 if count is None else abs(count - recording.num_samples)
    return rate != recording.sampling_rate or others > lhotse_allows() * rate


def converted(cut: Cut) -> tuple[Cut, bytes, str]:
    """Return any other cut, with its audio in a lossless format."""
    samples, rate = audio_of(cut), cut.sampling_rate  # (channels, n)
    channels, num_samples = list(range(len(samples))), samples.shape[1]
    audio, form = io.BytesIO(), lossless_form(samples)
    soundfile.write(audio, samples.T, rate, **form)
    recording = in_shard(Recording(cut.id, [], rate, num_samples, num_samples / rate, channels))
    kind, channel = (MonoCut, 0) if len(channels) == 1 else (MultiCut, channels)
    return (
        kind(cut.id, start=0.0, duration=num_samples / rate, channel=channel,
             supervisions=cut.supervisions, recording=recording),
        audio.getvalue(), "." + form["format"].lower(),
    )  # fmt: skip


def lossless_form(samples: np.ndarray) -> dict[str, str]:
    """Return soundfile's options for the smallest lossless format of samples (channels, n).

    FLAC has at most eight channels, and whole numbers within full scale. The samples of other
    recordings need 32-bit floats.
    """
    if len(samples) <= MAX_FLAC_CHANNELS:
        for bits in (16, 24):
            scale = 2.0 ** (bits - 1)
            scaled = samples * scale
            inside = -scale <= scaled.min(initial=0.0) and scaled.max(initial=0.0) < scale
            if inside and np.array_equal(scaled, np.rint(scaled)):
                return {"format": "FLAC", "subtype": f"PCM_{bits}"}
    return {"format": "WAV", "subtype": "FLOAT"}


def in_shard(recording: Recording) -> Recording:
    """Return the recording with lhotse's marker for audio in a tar."""
    source = AudioSource(type="shar", channels=recording.channel_ids, source="")
    return fastcopy(recording, sources=[source])
