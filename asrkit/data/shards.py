"""Shards: tars of audio with an index in Arrow's format, which is mapped into memory."""

import io
import os
import tarfile
from collections.abc import Iterable, Iterator
from itertools import chain, count, islice
from pathlib import Path

import numpy as np
import pyarrow
import soundfile
from tqdm import tqdm

from asrkit import audio
from asrkit.atomic_write import new_folder, refuse_existing
from asrkit.audio.files import opened
from asrkit.data.manifest import INDEX, LeftOut, ManifestError, require_shards
from asrkit.data.recording import MAX_BYTES, ROUNDING, Recording
from asrkit.errors import reason, shown

NUMBERS = {"start": "double", "duration": "double", "channel": "uint16", "track": "uint16",
           "sample_rate": "uint32", "num_channels": "uint16", "first_byte": "uint64",
           "num_bytes": "uint64"}  # fmt: skip
SCHEMA = pyarrow.schema([(name, NUMBERS.get(name, "string")) for name in Recording.model_fields])
ROWS = 100_000  # rows that are written at a time: small batches would be slow to read
ROWS_READ = 10_000  # rows that become recordings at a time: one by one would take ten times as long
MAX_FLAC_CHANNELS = 8
COPIED = (".flac", ".wav", ".ogg", ".opus", ".mp3")  # formats that are read from memory


def refuse_undecodable(folder: Path) -> None:
    """Reject a folder whose path Arrow cannot hold."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise ManifestError(
            f"{shown(folder)}: the name of this folder is not UTF-8: rename it"
        ) from None


def open_index(folder: str) -> pyarrow.Table:
    """Map the index of a folder of shards into memory."""
    path = Path(folder, INDEX)
    require_shards(path.parent)
    refuse_undecodable(path.parent)
    try:
        table = pyarrow.ipc.open_file(pyarrow.memory_map(str(path))).read_all()
        table.validate()
        if table.schema != SCHEMA:
            raise ValueError(f"its columns are {', '.join(table.column_names)}")
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise ManifestError(
            f"{shown(path)} is damaged, or of another version ({reason(error)}): pack the shards "
            "again with asrkit data shard"
        ) from None
    return table


def recordings_at(
    table: pyarrow.Table, folder: str | None, rows: np.ndarray
) -> Iterator[Recording]:
    """Yield the recordings of rows (n,) in ascending order; `folder` is the shards', or None."""
    for start in range(0, len(rows), ROWS_READ):
        block = rows[start : start + ROWS_READ]
        first, last = int(block[0]), int(block[-1])
        near = table.slice(first, last - first + 1)  # Arrow copies all of it
        for values in near.take(block - first).to_pylist():
            if folder is not None:
                values["audio"] = os.path.join(folder, values["audio"])
            yield Recording.model_construct(**values)


def pack(
    recordings: Iterable[Recording], output: Path, shard_size: int, left_out: list[LeftOut]
) -> pyarrow.Table:
    """Write recordings with their audio into shards in a new folder; return their index.

    A file with exactly one recording is copied. Parts of files, and formats that are not in COPIED,
    are rewritten in a lossless format. Unreadable recordings are appended to `left_out`. After an
    error the folder does not exist.
    """
    refuse_undecodable(output)
    refuse_existing(output)
    with new_folder(output) as part, pyarrow.ipc.new_file(str(part / INDEX), SCHEMA) as index:
        packed = packable(tqdm(recordings, str(output), disable=None, unit=" utt"), left_out)
        rows: list[dict[str, object]] = []
        for number in count():
            shard = [*write_shard(islice(packed, shard_size), part / f"{number:06d}.tar")]
            rows += shard
            if rows and (len(rows) >= ROWS or not shard):
                index.write_table(pyarrow.Table.from_pylist(rows, SCHEMA))
                rows = []
            if not shard:
                break
        if not number:
            raise ManifestError(
                f"no utterance can be packed: {left_out[0] if left_out else 'the input is empty'}"
            )
    return open_index(str(output))


def write_shard(
    packed: Iterator[tuple[Recording, bytes, str]], path: Path
) -> Iterator[dict[str, object]]:
    """Write a tar of pairs of audio and JSON; yield the row of each recording in the index."""
    first = next(packed, None)
    if first is None:
        return
    with path.open("wb") as file, tarfile.open(fileobj=file, mode="w") as tar:
        for recording, data, suffix in chain([first], packed):
            names = [f"{recording.id}{suffix}", f"{recording.id}.json"]
            about = recording.model_dump_json(include={"id", "text", "speaker", "duration"})
            for name, content in zip(names, (data, about.encode()), strict=True):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
                if content is data:
                    begin = file.tell() + -len(data) // tarfile.BLOCKSIZE * tarfile.BLOCKSIZE
            place = {"audio": path.name, "first_byte": begin, "num_bytes": len(data)}
            yield recording.model_dump() | place


def packable(
    recordings: Iterable[Recording], left_out: list[LeftOut]
) -> Iterator[tuple[Recording, bytes, str]]:
    """Yield each recording as stored in a shard, with its audio and the suffix of its format."""
    for each in recordings:
        try:
            measured = each.measured()
            yield copied(measured) or converted(measured)
        except (audio.AudioError, OSError, soundfile.LibsndfileError) as error:
            left_out.append(LeftOut(each.id, str(error)))


def copied(recording: Recording) -> tuple[Recording, bytes, str] | None:
    """Return a recording that is a whole file in one of the COPIED formats, or None."""
    path, suffix = Path(recording.audio), Path(recording.audio).suffix.lower()
    is_part = recording.start or recording.channel is not None or recording.track
    if is_part or suffix not in COPIED or recording.num_bytes:
        return None
    with opened(path) as file:
        rate, length = file.sample_rate, file.num_samples
    assert recording.duration is not None
    if rate != recording.sample_rate or (
        length is not None and abs(length / rate - recording.duration) > ROUNDING
    ):
        return None  # a part, or a file that contradicts the manifest
    if path.stat().st_size > MAX_BYTES:
        return None
    return recording, path.read_bytes(), suffix


def converted(recording: Recording) -> tuple[Recording, bytes, str]:
    """Return any other recording, with its audio in a lossless format."""
    samples, rate = recording.read()
    data, form = io.BytesIO(), lossless_form(samples)
    soundfile.write(data, samples, rate, **form)
    whole = {"start": None, "channel": None, "track": None,
             "duration": len(samples) / rate, "num_channels": samples.shape[1]}  # fmt: skip
    return recording.model_copy(update=whole), data.getvalue(), "." + form["format"].lower()


def lossless_form(samples: np.ndarray) -> dict[str, str]:
    """Return soundfile's options for the smallest lossless format of samples (n, channels).

    FLAC has at most eight channels, and whole numbers within full scale. The samples of other
    recordings need 32-bit floats.
    """
    if samples.shape[1] <= MAX_FLAC_CHANNELS:
        for bits in (16, 24):
            scale = 2.0 ** (bits - 1)
            scaled = samples * scale
            inside = -scale <= scaled.min(initial=0.0) and scaled.max(initial=0.0) < scale
            if inside and np.array_equal(scaled, np.rint(scaled)):
                return {"format": "FLAC", "subtype": f"PCM_{bits}"}
    return {"format": "WAV", "subtype": "FLOAT"}
