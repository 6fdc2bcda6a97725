"""Lhotse's recordings with supervisions, its cuts, and its Shar; nothing of them is run."""

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asrkit.data.corpora.entry import CorpusError, Entry, Omitted, Source, found_audio
from asrkit.data.corpora.fields import entry_of
from asrkit.data.corpora.json_lines import objects_in
from asrkit.data.splits import split_of
from asrkit.errors import reason, shown

ENDINGS = (".jsonl", ".jsonl.gz")
DESCRIPTIONS = (".json", ".nometa")  # members of a shard beside the audio
NOT_A_FILE = (
    "recording that is not a single local file (commands and URLs are never used): mixed and "
    "transformed cuts can be written with lhotse's save_audios"
)
Bytes = tuple[int, int | None]  # first byte and number of bytes of audio inside a file
WHOLE: Bytes = (0, None)
CHANNELS = "cut or supervision of some of several channels"


def read_lhotse(source: Source, omitted: Omitted) -> Iterator[Entry]:
    """Yield the cuts of all lists, or the supervisions of all manifests beside recordings."""
    path = source.path
    inside = sorted(path.iterdir()) if path.is_dir() else [path]
    inside = [each for each in inside if each.name.endswith(ENDINGS)]
    root = source.audio_root or Path.cwd()
    lists = [each for each in inside if is_of_cuts(each)]
    for each in lists:
        for where, values, (first, size) in cuts_in(each, root, omitted):
            if entry := entry_of(values, Path(), source.ids, omitted, where):
                split = part_of(each, lists)
                yield entry._replace(split=split, first_byte=first, num_bytes=size)
    pairs = [each.with_name(each.name.replace("supervisions", "recordings")) for each in inside]
    pairs = [each for each in dict.fromkeys(pairs) if "recordings" in each.name]
    for each in pairs if not lists else ():
        audio = {name: rest for name, *rest in recordings_in(each, root, omitted)}
        beside = each.with_name(each.name.replace("recordings", "supervisions"))
        for where, values in objects_in(beside, omitted):
            name, recording = values.get("id"), values.get("recording_id")
            if not isinstance(name, str) or None in (values.get("start"), values.get("duration")):
                omitted.add("supervision without an id, a start or a duration", where)
            elif not isinstance(recording, str) or recording not in audio:
                omitted.add("supervision without a recording", f"{where}: {name}")
            elif len(channels := channels_of(values, audio[recording][1])) != 1:
                omitted.add(CHANNELS, f"{where}: {name}")
            else:
                own = str(audio[recording][0].absolute())
                its = values | {"audio": own, "channel": channels[0]}
                if entry := entry_of(its, Path(), source.ids, omitted, where):
                    yield entry._replace(split=part_of(each, pairs))


def part_of(path: Path, others: list[Path]) -> str | None:
    """Return the part that a list is, by its name beside other lists."""
    return split_of(Path(*path.name.split("_"))) if len(others) > 1 else None


def is_of_cuts(path: Path) -> bool:
    """Return whether a list has cuts, by its first object."""
    _, first = next(objects_in(path, Omitted()), ("", {}))
    return str(first.get("type")).endswith("Cut")


def cuts_in(
    path: Path, root: Path, omitted: Omitted
) -> Iterator[tuple[str, dict[str, Any], Bytes]]:
    """Yield the place, the values by a manifest's keys, and the bytes inside a tar, of each cut."""
    tar = path.with_name(f"recording{path.name.removeprefix('cuts').partition('.jsonl')[0]}.tar")
    members = members_of(tar) if tar.is_file() else {}
    for where, cut in objects_in(path, omitted):
        recording, place = cut.get("recording"), members.get(str(cut.get("id")), WHOLE)
        audio = audio_of(recording, where, root, omitted) if place is WHOLE else tar
        known = recording.get("channel_ids") if isinstance(recording, dict) else None
        if len(channels := channels_of(cut, known)) != 1:
            omitted.add(CHANNELS, f"{where}: {shown(cut.get('channel'))}")
        elif audio is not None:
            said = [each for each in cut.get("supervisions") or () if isinstance(each, dict)]
            yield where, {
                "id": cut.get("id"), "audio": str(audio.absolute()), "channel": channels[0],
                "start": cut.get("start"), "duration": cut.get("duration"),
                "text": " ".join(str(each["text"]) for each in said if each.get("text")),
                "speaker": next((each["speaker"] for each in said if each.get("speaker")), None),
            }, place  # fmt: skip


def channels_of(values: dict[str, Any], known: Any) -> list[Any]:
    """Return the channels of a cut or a supervision; [None] for all that its recording has."""
    channel = values.get("channel")
    channels = channel if isinstance(channel, list) else [channel]
    return [None] if channels == known else channels


def members_of(tar: Path) -> dict[str, Bytes]:
    """Return the place of each recording's audio in a shard, by its id."""
    try:
        with tarfile.open(tar) as file:
            return {
                each.name.rpartition(".")[0]: (each.offset_data, each.size)
                for each in file
                if each.isreg() and each.size and not each.name.endswith(DESCRIPTIONS)
            }
    except (tarfile.TarError, OSError, EOFError) as error:
        raise CorpusError(f"{shown(tar)} cannot be read: {reason(error)}: copy it again") from None


def recordings_in(path: Path, root: Path, omitted: Omitted) -> Iterator[tuple[str, Path, Any]]:
    """Yield the id, the file and the channels of each recording."""
    for where, values in objects_in(path, omitted):
        if (audio := audio_of(values, where, root, omitted)) is not None:
            yield values["id"], audio, values.get("channel_ids")


def audio_of(recording: Any, where: str, root: Path, omitted: Omitted) -> Path | None:
    """Return the only file of a recording; None, with a reason, for any other recording."""
    values = recording if isinstance(recording, dict) else {}
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
        return None
    return found_audio(named, root, omitted)
