"""Hugging Face's datasets: parquet files and folders of save_to_disk by pyarrow."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asrkit.atomic_write import replacing
from asrkit.audio.files import SUFFIXES
from asrkit.data.corpora.entry import CorpusError, Entry, Ids, Omitted, Source
from asrkit.data.corpora.fields import entry_of, field_of
from asrkit.data.corpora.folder import files_of
from asrkit.data.corpora.measure import EMPTY
from asrkit.data.corpora.table import columns_of
from asrkit.data.splits import split_of
from asrkit.errors import reason, shown
from asrkit.extras import need

ROWS = 32  # rows of which the audio is in memory
MAX_BYTES = 1 << 30  # of the audio of a row
MAGIC = {b"RIFF": ".wav", b"fLaC": ".flac", b"OggS": ".ogg"}  # others are .mp3


def files_in(path: Path) -> list[Path]:
    """Return the parquet and Arrow files of a dataset, without caches."""
    found = files_of(path) if path.is_dir() else iter([path])
    return [
        each
        for each in found
        if each.suffix in (".parquet", ".arrow")
        and not each.name.startswith(("cache-", "tmp", "indices"))
    ]


def read_dataset(source: Source, omitted: Omitted) -> Iterator[Entry]:
    """Yield the rows of a dataset. Audio in its files is written to `source.audio_output`.

    The dataset's own parts are kept.
    """
    need("pyarrow")
    import pyarrow

    names, root = Ids(), source.audio_root or source.path
    for path in files_in(source.path):
        split = split_of(path.relative_to(source.path.parent))
        try:
            for number, values in enumerate(rows_in(path, source), start=1):
                where = f"{path.name}: row {number}"
                if values.get("text") in (None, ""):
                    omitted.add(EMPTY, where)
                    continue
                audio = audio_of(values.pop("audio"), source.audio_output, names, omitted, where)
                if audio and (
                    entry := entry_of(values | {"audio": audio}, root, source.ids, omitted, where)
                ):
                    yield entry._replace(split=split)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise CorpusError(f"{shown(path)} cannot be read: {reason(error)}") from error


def rows_in(path: Path, source: Source) -> Iterator[dict[str, Any]]:
    """Yield the values of the columns that are read, by the key of a manifest."""
    schema, batches = opened(path)
    kinds = {name: str(schema.field(name).type) for name in schema.names}
    sound = [name for name in kinds if field_of(name) == "audio" and kinds[name] != "string"]
    # Beside a column with audio, others may have its path.
    header = [
        "" if sound and field_of(name) == "audio" and name != sound[0] else name for name in kinds
    ]
    places, _ = columns_of(path, header, source.columns)
    chosen = {field: schema.names[place] for field, place in places.items()}
    for batch in batches(list(chosen.values())):
        for first in range(0, len(batch), ROWS):
            for row in batch.slice(first, ROWS).to_pylist():
                yield {field: row[name] for field, name in chosen.items()}


def opened(path: Path) -> tuple[Any, Any]:
    """Return the schema of a file, and a function of columns that yields batches of rows."""
    from pyarrow import ipc, memory_map, parquet

    if path.suffix == ".parquet":
        file = parquet.ParquetFile(path)
        return file.schema_arrow, lambda columns: file.iter_batches(ROWS, columns=columns)
    data = memory_map(str(path))
    if data.read(6) == b"ARROW1":
        table = ipc.open_file(data)
        parts = (table.get_batch(number) for number in range(table.num_record_batches))
    else:
        data.seek(0)
        table = ipc.open_stream(data)
        parts = iter(table)
    return table.schema, lambda columns: (part.select(columns) for part in parts)


def audio_of(value: Any, folder: Path, names: Ids, omitted: Omitted, where: str) -> str | None:
    """Return the path of a row's audio (a path, bytes, or both), after writing the bytes."""
    given = value if isinstance(value, dict) else {"path": value}
    data, path = given.get("bytes"), given.get("path")
    if isinstance(path, bytes):
        data, path = path, None
    if not isinstance(data, bytes):
        if isinstance(path, str) and path:
            return path
        omitted.add("row without audio", where)
        return None
    if not 0 < len(data) <= MAX_BYTES:
        omitted.add("audio that is empty or too large", f"{where}: {len(data)} bytes")
        return None
    named = Path(path or "audio")
    ending = named.suffix.lower()
    if ending not in SUFFIXES:
        ending = MAGIC.get(data[:4], ".mp3")
    stem = names(Path(re.sub(r"[^\w-]", "_", named.stem)[:100] or "audio"))
    target = folder.absolute() / f"{stem}{ending}"
    with replacing(target) as temporary:
        temporary.write_bytes(data)
    return str(target)
