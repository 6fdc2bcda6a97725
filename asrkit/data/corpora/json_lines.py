"""Manifests in JSON lines: NeMo's, others', and asrkit's own."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asrkit.data.corpora.entry import Entry, Omitted, Source
from asrkit.data.corpora.fields import entry_of
from asrkit.data.corpora.table import columns_of
from asrkit.data.manifest import lines_of, read_manifest

TARRED = "audio in a tar archive: unpack it with tar xf and name its folder with --audio-root"


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
    """Yield the utterances of a manifest whose keys have usual names, or those of `--columns`."""
    root = source.audio_root or source.path.parent
    keys = [*dict.fromkeys(k for _, values in objects_in(source.path, Omitted()) for k in values)]
    places, _ = columns_of(source.path, keys, source.columns)
    for where, values in objects_in(source.path, omitted):
        named = {field: values.get(keys[place]) for field, place in places.items()}
        if isinstance(named["audio"], dict):  # as in Hugging Face's datasets
            named["audio"] = named["audio"].get("path")
        entry = entry_of(named, root, source.ids, omitted, where)
        if entry is not None and "shard_id" in values and not entry.audio.is_file():
            omitted.add(TARRED, where)
        elif entry is not None:
            yield entry._replace(split=source.split)


def read_own(source: Source, omitted: Omitted) -> Iterator[Entry]:
    """Yield the utterances of a manifest of asrkit, whose paths may lead anywhere."""
    for each in read_manifest(source.path):
        yield Entry(
            each.id, Path(each.audio), each.text, each.speaker, each.start or 0.0, each.duration,
            each.channel, track=each.track, first_byte=each.first_byte, num_bytes=each.num_bytes,
        )  # fmt: skip
