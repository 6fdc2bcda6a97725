"""Entries to lines of manifests: the headers of the audio, times, texts and doubles."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pydantic

from asrkit import audio
from asrkit.audio.file import TOLERANCE
from asrkit.audio.reading import AudioInfo
from asrkit.data.corpora.entry import MOST_ENTRIES, CorpusError, Entry, Omitted
from asrkit.data.manifest import Utterance, what_is_wrong
from asrkit.data.splits import Row

EMPTY = "empty text"
UNREADABLE = "audio that cannot be read"
OUTSIDE = "time outside the file"
WINDOW = 64  # files of a thread that are read before the results are used
Header = AudioInfo | str  # or the reason why the file cannot be read
Bar = Callable[[Iterable[Header], int], Iterable[Header]]


class Doubles(NamedTuple):
    """The ids and the parts of files that occurred, with the text of each part."""

    ids: set[str]
    parts: dict[tuple[object, ...], str]


def rows_of(entries: Iterable[Entry], omitted: Omitted, jobs: int, bar: Bar) -> list[Row]:
    """Return the entries as lines of a manifest, with absolute paths.

    Args:
        entries: utterances of a reader.
        omitted: counts to which unusable entries are added.
        jobs: number of threads that read headers.
        bar: function that shows the progress of an iteration of a known length.
    """
    doubles = Doubles(set(), {})
    kept: list[Entry] = []
    for entry in map(cleaned, entries):
        if is_new(entry, doubles, omitted):
            kept.append(entry)
        if len(kept) > MOST_ENTRIES:
            raise CorpusError(f"a corpus has at most {MOST_ENTRIES} utterances: import parts of it")
    files = list(dict.fromkeys(entry.audio for entry in kept))
    found = dict(zip(files, bar(headers(files, jobs), len(files)), strict=True))
    rows = (row_of(entry, found[entry.audio], omitted) for entry in kept)
    return [row for row in rows if row is not None]


def cleaned(entry: Entry) -> Entry:
    """Return the entry with an absolute path, and single spaces in its text and speaker."""
    text = None if entry.text is None else " ".join(entry.text.split())
    speaker = " ".join(entry.speaker.split()) if entry.speaker else None
    return entry._replace(audio=entry.audio.absolute(), text=text, speaker=speaker or None)


def is_new(entry: Entry, doubles: Doubles, omitted: Omitted) -> bool:
    """Return whether an entry has a text and is not a double; or else give the reason."""
    if not entry.text:
        omitted.add(EMPTY, entry.id)
        return False
    part = entry.audio, entry.start, entry.duration, entry.channel
    if part in doubles.parts:
        other = "" if doubles.parts[part] == entry.text else " with another text"
        omitted.add(f"audio that occurs twice{other}", entry.id)
        return False
    if entry.id in doubles.ids:
        omitted.add("id that occurs twice", entry.id)
        return False
    doubles.ids.add(entry.id)
    doubles.parts[part] = entry.text
    return True


def headers(files: Sequence[Path], jobs: int) -> Iterator[Header]:
    """Yield the header of each file in order, read by several threads."""
    waiting = iter(files)
    with ThreadPoolExecutor(jobs) as pool:
        while part := list(islice(waiting, WINDOW * jobs)):
            yield from pool.map(header, part)


def header(path: Path) -> Header:
    try:
        return audio.info(path)
    except audio.AudioError as error:
        return str(error)


def row_of(entry: Entry, found: Header, omitted: Omitted) -> Row | None:
    """Return the line of an entry; None, with a reason in `omitted`, if it cannot be used."""
    if isinstance(found, str):
        omitted.add(UNREADABLE, found)
        return None
    length = found.num_samples / found.sample_rate
    end = length if entry.duration is None else entry.start + entry.duration
    if not 0 <= entry.start < min(end, length) or end > length + TOLERANCE:
        omitted.add(OUTSIDE, f"{entry.id}: {entry.start:.2f} to {end:.2f} s of {length:.2f} s")
        return None
    if entry.channel is not None and entry.channel >= found.num_channels:
        omitted.add("channel that the file lacks", f"{entry.id}: {entry.channel}")
        return None
    row: Row = {"id": entry.id, "audio": str(entry.audio)}
    if entry.start == 0 and end > length - TOLERANCE:  # the whole file
        row["duration"] = round(length, 6)
        if entry.channel is None:  # with these, a training does not read the header
            row |= {"sample_rate": found.sample_rate, "num_channels": found.num_channels}
    else:
        row |= {"start": entry.start, "duration": round(min(end, length) - entry.start, 6)}
    if entry.channel is not None:
        row["channel"] = entry.channel
    row |= {"text": entry.text, "speaker": entry.speaker}
    row = {key: value for key, value in row.items() if value is not None}
    try:
        Utterance.model_validate(row)
    except pydantic.ValidationError as error:
        omitted.add("impossible value", f"{entry.id}: {what_is_wrong(error)}")
        return None
    return row | ({"split": entry.split} if entry.split else {})
