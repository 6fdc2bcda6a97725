"""Lhotse's cuts; nothing of them is run."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asrkit.data.corpora.source import CorpusError, Omitted, Source
from asrkit.data.corpora.table import objects_in
from asrkit.data.splits import Row, split_of
from asrkit.errors import shown

NOT_A_FILE = (
    "recording that is not a single local file (commands and URLs are never used): cuts of Shar, "
    "mixed and transformed cuts can be written with lhotse's save_audios"
)


def read_lhotse(source: Source, omitted: Omitted) -> Iterator[Row]:
    """Yield the cuts of all lists of a folder, or of one list."""
    lists = sorted(source.path.glob("cuts*.jsonl*")) if source.path.is_dir() else [source.path]
    if not lists or re.search("recordings|supervisions", lists[0].name):
        raise CorpusError(
            f"{shown(source.path)} has no cuts: make them with lhotse cut simple -r RECORDINGS "
            "-s SUPERVISIONS cuts.jsonl.gz"
        )
    root = source.audio_root or Path.cwd()
    for path in lists:
        split = split_of(Path(*path.name.split("_"))) if len(lists) > 1 else None
        for where, cut in objects_in(path, omitted):
            recording = cut.get("recording")
            if (audio := file_of(recording)) is None:
                omitted.add(NOT_A_FILE, f"{where}: {shown(cut.get('id'))}")
                continue
            said = [each for each in cut.get("supervisions") or () if isinstance(each, dict)]
            yield {
                "id": cut.get("id"), "audio": os.path.join(root, audio),
                "start": cut.get("start"), "duration": cut.get("duration"),
                "channel": channel_of(cut, recording), "where": where, "split": split,
                "text": " ".join(str(each["text"]) for each in said if each.get("text")),
                "speaker": next((each["speaker"] for each in said if each.get("speaker")), None),
            }  # fmt: skip


def channel_of(cut: Row, recording: Any) -> Any:
    """Return the channel of a cut; None for all that its recording has."""
    channel = cut.get("channel")
    channels = channel if isinstance(channel, list) else [channel]
    if isinstance(recording, dict) and channels == recording.get("channel_ids"):
        return None
    return channels[0] if len(channels) == 1 else channels  # several are refused


def file_of(recording: Any) -> str | None:
    """Return the only file of a recording, or None for any other recording."""
    match recording:
        case {"sources": [{"type": "file", "source": str(path)}]}:
            return None if recording.get("transforms") else path
    return None
