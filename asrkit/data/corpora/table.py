"""Tables in CSV and TSV, JSON lines, and the columns or keys of them that an import reads."""

import csv
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal

from asrkit.audio.files import SUFFIXES
from asrkit.data import manifest
from asrkit.data.corpora.source import CorpusError, Omitted, Source, lines_of
from asrkit.data.foreign import field_of
from asrkit.data.splits import Row
from asrkit.errors import shown

FIELDS = ("audio", "text", "speaker", "id", "start", "duration", "end", "channel", "track",
          "first_byte", "num_bytes")  # fmt: skip
NEEDED = ("audio", "text")
SHOWN_COLUMNS = 20
SEPARATORS = "\t|;,"  # the first that a table's first line has is its own
FOLDERS = (".", "clips", "wavs", "audio")  # places of the audio beside the table


def read_table(source: Source, omitted: Omitted) -> Iterator[Row]:
    path, root = source.path, source.audio_root
    first = next((line for _, line in lines_of(path)), "")
    sign = next((sign for sign in SEPARATORS if sign in first), None)
    if sign is None:
        raise CorpusError(f"{shown(path)} is not a table with columns: its first line names them")
    numbered = is_numbered(source.columns)
    # Quotes are characters of the text in TSV and in the tables of LJSpeech, which have no names.
    rows = rows_in(path, sign, sign != "\t" and not (sign == "|" and numbered))
    header = next(rows)
    places = columns_of(path, [name.strip() for name in header[1]], source.columns)
    for number, cells in chain([header] if numbered else [], rows):
        where = f"{path.name}:{number}"
        if len(cells) != len(header[1]):
            omitted.add(f"line without {len(header[1])} columns", f"{where}: {len(cells)}")
            continue
        values: Row = {field: cells[place].strip() for field, place in places.items()}
        name = values["audio"]
        if name and Path(name).suffix.lower() not in SUFFIXES:  # as in LJSpeech
            name += ".wav"
        if name:
            root = root or audio_root(path.parent, name)
            values["audio"] = os.path.join(root, name)
        yield values | {"where": where, "split": source.split}


def rows_in(path: Path, sign: str, is_quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each line, with the number of the line."""
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


def audio_root(folder: Path, name: str) -> Path:
    """Return the folder in which the first path of a table is found."""
    places = (folder / each for each in FOLDERS)
    return next((each for each in places if (each / name).is_file()), folder)


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


def objects_in(path: Path, omitted: Omitted) -> Iterator[tuple[str, Row]]:
    """Yield the place and the object of each line; count lines that are not JSON objects."""
    for number, line in manifest.lines_of(path):
        where = f"{path.name}:{number}"
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            values = None
        if isinstance(values, dict):
            yield where, values
        else:
            omitted.add("line that is not a JSON object", where)


def read_json_lines(source: Source, omitted: Omitted) -> Iterator[Row]:
    """Yield the utterances of a manifest whose keys have usual names, or those of `--columns`."""
    root = source.audio_root or source.path.parent
    keys = [*dict.fromkeys(k for _, values in objects_in(source.path, Omitted()) for k in values)]
    places = columns_of(source.path, keys, source.columns)
    for where, values in objects_in(source.path, omitted):
        row = {field: values.get(keys[place]) for field, place in places.items()}
        if isinstance(row["audio"], dict):  # as in Hugging Face's datasets
            row["audio"] = row["audio"].get("path")
        if isinstance(row["audio"], str):
            row["audio"] = os.path.join(root, row["audio"])
        yield row | {"where": where, "split": source.split}
