"""Entries to lines of manifests: the headers of the audio, times, texts and doubles."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pydantic
from tqdm import tqdm

from asrkit import audio
from asrkit.audio.files import AudioInfo
from asrkit.audio.samples import TOLERANCE
from asrkit.data.corpora.entry import Entry, Omitted
from asrkit.data.manifest import what_is_wrong
from asrkit.data.recording import Recording
from asrkit.data.splits import Row
from asrkit.errors import shown
from asrkit.text.graphemes import in_one_line

logger = logging.getLogger(__name__)

EMPTY = "empty text"
UNREADABLE = "audio that cannot be read"
OUTSIDE = "time outside the file"
WINDOW = 64  # files of a thread that are read before the results are used
Header = AudioInfo | str  # or the reason why the file cannot be read


def place_of(entry: Entry) -> Recording:
    """Return the whole recording that an entry is a part of."""
    fields = ("track", "first_byte", "num_bytes")
    values = {name: getattr(entry, name) for name in fields}
    return Recording.model_construct(id="", audio=str(entry.audio), **values)


def rows_of(entries: Iterable[Entry], omitted: Omitted, jobs: int) -> list[Row]:
    """Return the entries as lines of a manifest, with absolute paths; threads read headers."""
    kept = list(new(map(cleaned, entries), omitted))
    files = list(dict.fromkeys(map(place_of, kept)))
    bar = tqdm(headers(files, jobs), "headers", len(files), unit=" file", disable=None, leave=False)
    found = dict(zip(files, bar, strict=True))
    warn_of_channels([entry for entry in kept if entry.channel is None], found)
    pairs = [(entry, row_of(entry, found[place_of(entry)], omitted)) for entry in kept]
    cut = [e.id for e, row in pairs if row and (e.duration or 0) > row["duration"] + TOLERANCE]
    if cut:
        logger.warning(
            "%d utterances end beyond their files and are cut to them, such as %s",
            len(cut), shown(cut[0]),
        )  # fmt: skip
    return [row for _, row in pairs if row is not None]


def warn_of_channels(entries: Iterable[Entry], found: Mapping[Recording, Header]) -> None:
    """Log the files of entries without a channel that have several."""
    headers = ((entry.audio, found[place_of(entry)]) for entry in entries)
    mixed = [
        *dict.fromkeys(p for p, h in headers if isinstance(h, AudioInfo) and h.num_channels > 1)
    ]
    if mixed:
        logger.warning(
            "%d files have several channels, whose mean is used, such as %s: if these are "
            "different voices, name the channels, for example --channels agent=0,customer=1",
            len(mixed), shown(mixed[0]),
        )  # fmt: skip


def cleaned(entry: Entry) -> Entry:
    """Return the entry with an absolute path, and single spaces in its text and speaker."""
    text = None if entry.text is None else in_one_line(entry.text)
    speaker = " ".join(entry.speaker.split()) if entry.speaker else None
    return entry._replace(audio=entry.audio.absolute(), text=text, speaker=speaker or None)


def new(entries: Iterable[Entry], omitted: Omitted) -> Iterator[Entry]:
    """Yield the entries that have a text and are not doubles of an earlier one."""
    ids: set[str] = set()
    texts: dict[tuple[object, ...], str] = {}  # by part of a file
    for entry in entries:
        part = place_of(entry), entry.start, entry.duration, entry.channel
        if not entry.text:
            omitted.add(EMPTY, entry.id)
        elif part in texts:
            other = "" if texts[part] == entry.text else " with another text"
            omitted.add(f"audio that occurs twice{other}", entry.id)
        elif entry.id in ids:
            omitted.add("id that occurs twice", entry.id)
        else:
            ids.add(entry.id)
            texts[part] = entry.text
            yield entry


def headers(files: Sequence[Recording], jobs: int) -> Iterator[Header]:
    """Yield the header of each file in order, read by several threads."""
    waiting = iter(files)
    with ThreadPoolExecutor(jobs) as pool:
        while part := list(islice(waiting, WINDOW * jobs)):
            yield from pool.map(header, part)


def header(whole: Recording) -> Header:
    try:
        return audio.info(whole.source(), whole.track)
    except audio.AudioError as error:
        return str(error)


def row_of(entry: Entry, found: Header, omitted: Omitted) -> Row | None:
    """Return the line of an entry; None, with a reason in `omitted`, if it cannot be used."""
    if isinstance(found, str):
        omitted.add(UNREADABLE, found)
        return None
    length = found.num_samples / found.sample_rate
    end = length if entry.duration is None else entry.start + entry.duration
    if not 0 <= entry.start < min(end, length) or end > length + entry.overshoot:
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
    names = ("channel", "track", "num_bytes", "text", "speaker")
    row |= {name: getattr(entry, name) for name in names}
    row["first_byte"] = entry.first_byte or None
    row = {key: value for key, value in row.items() if value is not None}
    try:
        Recording.model_validate(row)
    except pydantic.ValidationError as error:
        omitted.add("impossible value", f"{entry.id}: {what_is_wrong(error)}")
        return None
    return row | ({"split": entry.split} if entry.split else {})
