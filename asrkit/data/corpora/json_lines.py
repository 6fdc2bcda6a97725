"""Manifests in JSON lines: NeMo's, others', and asrkit's own."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from asrkit.data.corpora.source import Omitted, Source
from asrkit.data.corpora.table import columns_of
from asrkit.data.manifest import lines_of
from asrkit.data.splits import Row


def objects_in(path: Path, omitted: Omitted) -> Iterator[tuple[str, Row]]:
    """Yield the place and the object of each line; count lines that are not JSON objects."""
    for number, line in lines_of(path):
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
