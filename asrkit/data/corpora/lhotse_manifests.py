"""Lhotse's recordings with supervisions, and its cuts. Their JSON is read without lhotse's code."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asrkit.data.corpora import fields
from asrkit.data.corpora.entry import Entry, Ids, Omitted, Source, found_audio
from asrkit.data.corpora.json_lines import objects_in
from asrkit.data.splits import NAMES
from asrkit.errors import shown

ENDINGS = (".jsonl", ".jsonl.gz")
NOT_A_FILE = "recording that is not a single local file (commands and URLs are never used)"


def recordings_at(path: Path) -> list[Path]:
    """Return the manifests of recordings in a folder, or the file itself."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
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
            entry = entry_of(where, values, audio, omitted)
            if entry is not None:
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


def entry_of(
    where: str, values: dict[str, Any], audio: dict[str, Path], omitted: Omitted
) -> Entry | None:
    """Return the utterance of a supervision; None, with a reason in `omitted`, if unusable."""
    name, recording = values.get("id"), values.get("recording_id")
    if not isinstance(name, str) or None in (values.get("start"), values.get("duration")):
        omitted.add("supervision without an id, a start or a duration", where)
    elif not isinstance(recording, str) or recording not in audio:
        omitted.add("supervision without a recording", f"{where}: {name}")
    else:
        its = {"audio": str(audio[recording].absolute()), "channel": values.get("channel") or None}
        return fields.entry_of(values | its, Path(), Ids(), omitted, where)
    return None
