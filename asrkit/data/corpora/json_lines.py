"""Manifests in JSON lines: NeMo's, others', asrkit's own, and lhotse's."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asrkit.data.corpora.entry import Entry, Omitted, Source, found_audio
from asrkit.data.corpora.fields import entry_of
from asrkit.data.corpora.table import columns_of
from asrkit.data.manifest import LeftOut, lines_of, read_manifest
from asrkit.data.splits import NAMES
from asrkit.errors import shown

ENDINGS = (".jsonl", ".jsonl.gz")
TARRED = "audio in a tar archive: unpack it with tar xf and name its folder with --audio-root"
NOT_A_FILE = "recording that is not a single local file (commands and URLs are never used)"


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
    left_out: list[LeftOut] = []
    for each in read_manifest(source.path, left_out):
        yield Entry(
            each.id, Path(each.audio), each.text, each.speaker, each.start or 0.0, each.duration,
            each.channel,
        )  # fmt: skip
    for problem in left_out:
        omitted.add("line with impossible values", problem)


def recordings_at(path: Path) -> list[Path]:
    """Return the manifests of recordings in a folder, or the one of a file of a pair."""
    named = path.with_name(path.name.replace("supervisions", "recordings"))
    files = sorted(path.iterdir()) if path.is_dir() else [named]
    return [each for each in files if "recordings" in each.name and each.name.endswith(ENDINGS)]


def read_lhotse(source: Source, omitted: Omitted) -> Iterator[Entry]:
    """Yield the supervisions of all manifests beside those of recordings."""
    pairs = recordings_at(source.path)
    for path in pairs:
        words = path.name.removesuffix(".gz").removesuffix(".jsonl").split("_")
        split = next((name for name in NAMES if name in words), None) if len(pairs) > 1 else None
        root = source.audio_root or Path.cwd()
        audio = dict(recordings_in(path, root, omitted))
        beside = path.with_name(path.name.replace("recordings", "supervisions"))
        for where, values in objects_in(beside, omitted):
            name, recording = values.get("id"), values.get("recording_id")
            if not isinstance(name, str) or None in (values.get("start"), values.get("duration")):
                omitted.add("supervision without an id, a start or a duration", where)
            elif not isinstance(recording, str) or recording not in audio:
                omitted.add("supervision without a recording", f"{where}: {name}")
            else:
                own = str(audio[recording].absolute())  # its channel 0 is the default
                its = values | {"audio": own, "channel": values.get("channel") or None}
                if entry := entry_of(its, Path(), source.ids, omitted, where):
                    yield entry._replace(split=split)


def recordings_in(path: Path, root: Path, omitted: Omitted) -> Iterator[tuple[str, Path]]:
    """Yield the id and the file of each recording."""
    for where, values in objects_in(path, omitted):
        sources, name = values.get("sources"), values.get("id")
        first: Any = sources[0] if isinstance(sources, list) and len(sources) == 1 else None
        named = first.get("source") if isinstance(first, dict) else None
        if (
            not isinstance(name, str)
            or not isinstance(named, str)
            or first.get("type") != "file"
            or values.get("transforms")
        ):
            omitted.add(NOT_A_FILE, f"{where}: {shown(name)}")
        elif (audio := found_audio(named, root, omitted)) is not None:
            yield name, audio
