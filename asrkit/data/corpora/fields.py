"""Named values of an utterance, from the columns of a table or the keys of an object."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asrkit.data.corpora.entry import Entry, Ids, Omitted, found_audio, seconds_of
from asrkit.data.foreign import ENDS, KEYS, plain
from asrkit.errors import shown

FIELDS = ("audio", "text", "speaker", "id", "start", "duration", "end", "channel")
NOT_A_TIME = "time or channel that is not a number"


def field_of(name: str) -> str:
    """Return the field of a key by its name, or "" for a key that is not read."""
    bare = plain(name)
    if bare in ENDS:
        return "end"
    found = KEYS.get(bare, bare)
    return found if found in FIELDS else ""


def entry_of(
    values: Mapping[str, Any], root: Path, ids: Ids, omitted: Omitted, where: str
) -> Entry | None:
    """Return the utterance of a line; None, with a reason in `omitted`, if it cannot be used."""
    named, texts = values.get("audio"), {}
    if not named or not isinstance(named, str):
        omitted.add("line without audio", where)
        return None
    for field in ("id", "text", "speaker"):
        value = values.get(field)
        texts[field] = str(value) if isinstance(value, int) else value
        if not isinstance(texts[field], str | None):
            omitted.add("value that is not a text", f"{where}: {field} {shown(value, 30)}")
            return None
    audio = found_audio(named, root, omitted)
    if audio is None:
        return None
    numbers: dict[str, float] = {}
    for field in ("start", "duration", "end", "channel"):
        if values.get(field) in (None, ""):
            continue
        number = seconds_of(values[field])
        if number is None or (field == "channel" and number % 1):
            omitted.add(NOT_A_TIME, f"{where}: {field} {shown(values[field], 30)}")
            return None
        numbers[field] = number
    start, duration = numbers.get("start", 0.0), numbers.get("duration")
    if duration is None and "end" in numbers:
        duration = numbers["end"] - start
    return Entry(
        texts["id"] or ids(audio), audio, texts["text"], texts["speaker"], start,
        duration, int(numbers["channel"]) if "channel" in numbers else None,
    )  # fmt: skip
