"""The columns of a table, or the keys of objects, that an import reads."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from asrkit.data.corpora.source import CorpusError
from asrkit.data.foreign import field_of
from asrkit.errors import shown

FIELDS = ("audio", "text", "speaker", "id", "start", "duration", "end", "channel", "track",
          "first_byte", "num_bytes")  # fmt: skip
NEEDED = ("audio", "text")
SHOWN_COLUMNS = 20


def is_numbered(columns: Mapping[str, str]) -> bool:
    """Return whether columns are named by numbers, so that the first line has no names."""
    return bool(columns) and all(name.isdecimal() for name in columns.values())


def columns_of(path: Path, names: Sequence[str], wanted: Mapping[str, str]) -> dict[str, int]:
    """Return the place of each column that is read, by the key of a manifest."""
    known = ", ".join(shown(name, 30) for name in names[:SHOWN_COLUMNS])
    places: dict[str, int] = {}
    for field, name in wanted.items():
        if name not in names and not (name.isdecimal() and 1 <= int(name) <= len(names)):
            raise CorpusError(f"{shown(path)} has no column {shown(name)}: its columns are {known}")
        places[field] = names.index(name) if name in names else int(name) - 1
    for place, name in enumerate([] if is_numbered(wanted) else names):
        field = field_of(name)
        if field in wanted or field not in FIELDS:
            continue
        if field in places:
            raise CorpusError(
                f"{shown(path)}: the columns {shown(names[places[field]])} and {shown(name)} can "
                f"both be {field}: name one with --columns {field}=COLUMN"
            )
        places[field] = place
    if missing := [field for field in NEEDED if field not in places]:
        raise CorpusError(
            f"{shown(path)} has no column for {' and '.join(missing)}: name it with --columns "
            f"{','.join(f'{field}=COLUMN' for field in missing)}; its columns are {known}"
        )
    return places
