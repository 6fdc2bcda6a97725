"""Rows of readers to lines of manifests: valid values, the headers of the audio, doubles."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pydantic
from tqdm import tqdm

from asrkit import audio
from asrkit.audio.files import AudioInfo
from asrkit.audio.samples import TOLERANCE
from asrkit.data.corpora.source import Ids, Omitted
from asrkit.data.inputs import in_threads
from asrkit.data.manifest import what_is_wrong
from asrkit.data.recording import Recording
from asrkit.data.splits import Row
from asrkit.text.graphemes import in_one_line

Header = AudioInfo | str  # or the reason why the file cannot be read


def rows_of(values: Iterable[Row], omitted: Omitted) -> list[Row]:
    """Return what readers yield as lines of a manifest, with absolute paths.

    Args:
        values: keys of a manifest, "end" and "split", with numbers as such or as text, and "where"
            for messages.
    """
    pairs = [*new(values, omitted)]
    files = [*dict.fromkeys(whole(each) for each, _ in pairs)]
    bar = tqdm(
        in_threads(header, files), "headers", len(files), unit=" file", disable=None, leave=False
    )
    found = dict(zip(files, bar, strict=True))
    rows = []
    for each, split in pairs:
        if (row := row_of(each, found[whole(each)], omitted)) is not None:
            rows.append(row | ({"split": split} if split else {}))
    return rows


def new(rows: Iterable[Row], omitted: Omitted) -> Iterator[tuple[Recording, str | None]]:
    """Yield the utterances, and their parts, that are valid and no doubles of an earlier one."""
    ids: set[str] = set()
    texts: dict[Recording, str] = {}  # by part of a file
    name_of = Ids()
    for values in rows:
        try:
            each = recording_of(values, name_of)
        except pydantic.ValidationError as error:
            where = values.get("where") or values.get("id")
            omitted.add("impossible value", f"{where}: {what_is_wrong(error)}")
            continue
        place = {"id": "", "text": None, "speaker": None, "start": each.start or 0.0}
        part = each.model_copy(update=place)
        if "://" in each.audio or each.audio.endswith("|"):
            omitted.add("audio that is not a local file: commands are never run", each.audio)
        elif not each.text:
            omitted.add("empty text", each.id)
        elif part in texts:
            other = "" if texts[part] == each.text else " with another text"
            omitted.add(f"audio that occurs twice{other}", each.id)
        elif each.id in ids:
            omitted.add("id that occurs twice", each.id)
        else:
            ids.add(each.id)
            texts[part] = each.text
            yield each, values.get("split")


def recording_of(values: Row, name_of: Ids) -> Recording:
    """Return the recording of a row; spaces in its text are single, and its path is absolute.

    Raises:
        pydantic.ValidationError: for a value that a manifest cannot have.
    """
    row = {key: value for key, value in values.items() if value not in (None, "")}
    for key in ("id", "text", "speaker"):
        if isinstance(row.get(key), int):
            row[key] = str(row[key])
    if isinstance(path := row.get("audio"), str):
        row["audio"] = path if "://" in path else str(Path(path).absolute())
    if "id" not in row:
        row["id"] = name_of(Path(str(path)))
    if "end" in row and "duration" not in row:
        try:
            row["duration"] = float(row["end"]) - float(row.get("start", 0.0))
        except (TypeError, ValueError):
            row["duration"] = row["end"]  # which is refused
    if isinstance(row.get("text"), str):
        row["text"] = in_one_line(row["text"])
    if isinstance(row.get("speaker"), str):
        row["speaker"] = " ".join(row["speaker"].split()) or None
    return Recording.model_validate(row, strict=False)


def whole(each: Recording) -> Recording:
    """Return the whole recording that an utterance is a part of."""
    fields = ("audio", "track", "first_byte", "num_bytes")
    return Recording.model_construct(id="", **{name: getattr(each, name) for name in fields})


def header(whole: Recording) -> Header:
    try:
        return audio.info(whole.source(), whole.track)
    except audio.AudioError as error:
        return str(error)


def row_of(each: Recording, found: Header, omitted: Omitted) -> Row | None:
    """Return the line of an utterance; None, with a reason in `omitted`, if it cannot be used."""
    if isinstance(found, str):
        omitted.add("audio that cannot be read", found)
        return None
    length, start = found.num_samples / found.sample_rate, each.start or 0.0
    end = length if each.duration is None else start + each.duration
    if start >= min(end, length) or end > length + TOLERANCE:
        omitted.add(
            "time outside the file", f"{each.id}: {start:.2f} to {end:.2f} s of {length:.2f} s"
        )
        return None
    if each.channel is not None and each.channel >= found.num_channels:
        omitted.add("channel that the file lacks", f"{each.id}: {each.channel}")
        return None
    facts: Row = {"start": start, "duration": round(min(end, length) - start, 6)}
    if start == 0 and end > length - TOLERANCE:  # the whole file
        facts = {"start": None, "duration": round(length, 6)}
        if each.channel is None:  # with these, a training does not read the header
            facts |= {"sample_rate": found.sample_rate, "num_channels": found.num_channels}
    return each.model_copy(update=facts).model_dump(exclude_unset=True, exclude_none=True)
