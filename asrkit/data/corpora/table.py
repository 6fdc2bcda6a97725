"""Tables in CSV and TSV."""

import csv
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Literal

from asrkit.audio.files import SUFFIXES
from asrkit.data.corpora.entry import CorpusError, Entry, Omitted, Source, lines_of
from asrkit.data.corpora.fields import entry_of, field_of
from asrkit.data.foreign import SEPARATORS, separator
from asrkit.errors import shown

NEEDED = ("audio", "text")
FOLDERS = (".", "clips", "wavs", "audio")  # places of the audio beside the table
TIMES = {"start", "duration", "end"}
SHOWN_COLUMNS = 20


def read_table(source: Source, omitted: Omitted) -> Iterator[Entry]:
    path, root = source.path, source.audio_root
    sign = separator_of(source)
    rows = rows_in(path, sign, sign != "\t" and not (sign == "|" and is_numbered(source.columns)))
    header = next(rows)
    places, width = columns_of(path, header[1], source.columns)
    for number, cells in chain([header] if is_numbered(source.columns) else [], rows):
        where = f"{path.name}:{number}"
        if len(cells) != width:
            omitted.add(f"line without {width} columns", f"{where}: {len(cells)}")
            continue
        values = {field: cells[place].strip() for field, place in places.items()}
        if sign != ",":  # tables with other separators may have decimal commas
            values |= {field: values[field].replace(",", ".") for field in places.keys() & TIMES}
        if root is None and values["audio"]:
            root = audio_root(path.parent, values["audio"])
        folder = root or path.parent
        if Path(values["audio"]).suffix.lower() not in SUFFIXES:  # as in LJSpeech
            ended = f"{values['audio']}.wav"
            values["audio"] = ended if (folder / ended).is_file() else values["audio"]
        entry = entry_of(values, folder, source.ids, omitted, where)
        if entry is not None:
            yield entry._replace(split=source.split)


def separator_of(source: Source) -> str:
    """Return the character between the columns of a table."""
    first = list(islice((line for _, line in lines_of(source.path)), 20))
    sign = separator(first) if first else None
    if sign is None and first:
        sign = max(SEPARATORS, key=first[0].count)
    if sign is None or sign not in first[0]:
        raise CorpusError(
            f"{shown(source.path)} is not a table with columns: its first line names them"
        )
    return sign


def rows_in(path: Path, sign: str, is_quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each line, with the number of the line.

    Quotes are characters of the text in TSV and in the tables of LJSpeech, which have no names.
    """
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE
    lines = (line + "\n" for _, line in lines_of(path))
    rows = csv.reader(lines, delimiter=sign, quoting=quoting, strict=True)
    try:
        for cells in rows:
            yield rows.line_num, cells
    except csv.Error as error:
        raise CorpusError(
            f"{shown(path)}:{rows.line_num}: {error}: correct the quotes of this line"
        ) from None


def is_numbered(columns: Mapping[str, str]) -> bool:
    """Return whether columns are named by numbers, so that the first line has no names."""
    return bool(columns) and all(name.isdecimal() for name in columns.values())


def columns_of(
    path: Path, header: list[str], wanted: Mapping[str, str]
) -> tuple[dict[str, int], int]:
    """Return the place of each column that is read, and the number of columns."""
    names = [name.strip() for name in header]
    known = ", ".join(shown(name, 30) for name in names[:SHOWN_COLUMNS])
    places: dict[str, int] = {}
    for field, name in wanted.items():
        if name not in names and not (name.isdecimal() and 1 <= int(name) <= len(names)):
            raise CorpusError(f"{shown(path)} has no column {shown(name)}: its columns are {known}")
        places[field] = names.index(name) if name in names else int(name) - 1
    for place, name in enumerate([] if is_numbered(wanted) else names):
        field = field_of(name)
        if not field or field in wanted:
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
    return places, len(names)


def audio_root(folder: Path, name: str) -> Path:
    """Return the folder in which the first path of a table is found."""
    places = [(folder / each, end) for each in FOLDERS for end in ("", ".wav")]
    return next((each for each, end in places if (each / f"{name}{end}").is_file()), folder)
