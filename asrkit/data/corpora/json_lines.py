"""Manifests in JSON lines: NeMo's, WeNet's, and asrkit's own."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asrkit.data.corpora.entry import Entry, Ids, Omitted, Source
from asrkit.data.corpora.fields import entry_of, field_of
from asrkit.data.manifest import LeftOut, lines_of, read_manifest


def objects_in(path: Path, omitted: Omitted) -> Iterator[tuple[str, dict[str, Any]]]:
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


def read_json_lines(source: Source, omitted: Omitted) -> Iterator[Entry]:
    """Yield the utterances of a manifest whose keys have usual names."""
    ids, root = Ids(), source.audio_root or source.path.parent
    for where, values in objects_in(source.path, omitted):
        named = {field: values[key] for key in values if (field := field_of(key))}
        entry = entry_of(named, root, ids, omitted, where)
        if entry is not None:
            yield entry


def read_own(source: Source, omitted: Omitted) -> Iterator[Entry]:
    """Yield the utterances of a manifest of asrkit, whose paths may lead anywhere."""
    left_out: list[LeftOut] = []
    for each in read_manifest(source.path, left_out):
        yield Entry(
            each.id, Path(each.audio), each.text, each.speaker, each.start or 0.0, each.duration,
            each.channel,
        )  # fmt: skip
    for problem in left_out:
        omitted.add("line with impossible values", problem)
