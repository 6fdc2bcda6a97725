"""Hugging Face's datasets: parquet files by pyarrow."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asrkit.atomic_write import replacing
from asrkit.audio.files import SUFFIXES
from asrkit.data.corpora.source import CorpusError, Ids, Omitted, Source
from asrkit.data.corpora.table import columns_of
from asrkit.data.foreign import field_of
from asrkit.data.inputs import files_of
from asrkit.data.splits import Row, split_of
from asrkit.errors import reason, shown
from asrkit.extras import need

ROWS = 32  # rows of which the audio is in memory
MAGIC = {b"RIFF": ".wav", b"fLaC": ".flac", b"OggS": ".ogg"}  # others are .mp3


def read_dataset(source: Source, omitted: Omitted) -> Iterator[Row]:
    """Yield the rows of a dataset. Audio in its files is written to `source.audio_output`.

    The dataset's own parts are kept.
    """
    need("pyarrow")
    import pyarrow

    names, root = Ids(), source.audio_root or source.path
    for path in files_of(source.path) if source.path.is_dir() else [source.path]:
        if path.suffix != ".parquet":
            continue
        split = split_of(path.relative_to(source.path.parent))
        try:
            for number, row in enumerate(rows_in(path, source), start=1):
                where = f"{path.name}: row {number}"
                if row.get("text") in (None, ""):
                    omitted.add("empty text", where)
                    continue
                audio = audio_of(row["audio"], source.audio_output, names)
                if audio and isinstance(audio, str):
                    audio = os.path.join(root, audio)
                yield row | {"audio": audio, "where": where, "split": split}
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise CorpusError(f"{shown(path)} cannot be read: {reason(error)}") from error


def rows_in(path: Path, source: Source) -> Iterator[Row]:
    """Yield the values of the columns that are read, by the key of a manifest."""
    from pyarrow import parquet

    file = parquet.ParquetFile(path)
    schema = file.schema_arrow
    kinds = {name: str(schema.field(name).type) for name in schema.names}
    sound = [name for name in kinds if field_of(name) == "audio" and kinds[name] != "string"]
    # Beside a column with audio, others may have its path.
    header = [
        "" if sound and field_of(name) == "audio" and name != sound[0] else name for name in kinds
    ]
    places = columns_of(path, header, source.columns)
    chosen = {field: schema.names[place] for field, place in places.items()}
    for batch in file.iter_batches(ROWS, columns=[*chosen.values()]):
        for row in batch.to_pylist():
            yield {field: row[name] for field, name in chosen.items()}


def audio_of(value: Any, folder: Path, names: Ids) -> Any:
    """Return the path of a row's audio (a path, bytes, or both), after writing the bytes."""
    given = value if isinstance(value, dict) else {"path": value}
    data, path = given.get("bytes"), given.get("path")
    if isinstance(path, bytes):
        data, path = path, None
    if not isinstance(data, bytes):
        return path
    named = Path(path or "audio")
    ending = named.suffix.lower()
    if ending not in SUFFIXES:
        ending = MAGIC.get(data[:4], ".mp3")
    stem = names(Path(re.sub(r"[^\w-]", "_", named.stem)[:100] or "audio"))
    target = folder.absolute() / f"{stem}{ending}"
    with replacing(target) as temporary:
        temporary.write_bytes(data)
    return str(target)
