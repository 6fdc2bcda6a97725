"""Writer of the index of a lhotse corpus: Shar shards, or cuts in JSON lines."""

import hashlib
import json
import logging
import os
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pydantic
from lhotse import AudioSource, Recording
from lhotse.cut import Cut
from lhotse.serialization import deserialize_item
from tqdm import tqdm

from asrkit.atomic_write import new_folder, remove_folder
from asrkit.data.cuts import inert, text_of
from asrkit.data.index import (
    DESCRIPTION,
    LINES,
    MAX_MEMBER,
    ROW,
    ROWS,
    Description,
    Index,
    opened_index,
)
from asrkit.data.manifest import (
    LeftOut,
    ManifestError,
    is_lhotse,
    leaves_out,
    lines_in,
    refuse_foreign,
    what_is_wrong,
)
from asrkit.data.storage import Folder, Stamp
from asrkit.errors import printable, shown

logger = logging.getLogger(__name__)

MAX_JSON = 1 << 20  # bytes of a recording's description in a shard


class Member(NamedTuple):
    """A recording in a tar."""

    id: str
    offset: int
    size: int
    recording: dict[str, Any] | None  # None for a cut without audio


def can_be_indexed(path: str) -> bool:
    """Return whether a path has Shar shards, or lhotse's cuts in JSON lines."""
    local = Path(path)
    refuse_foreign(local)
    return "://" in path or (
        local.exists() and is_lhotse(local) and (local.is_dir() or ".jsonl" in local.suffixes)
    )


def index_of(path: str) -> Index:
    """Open the index of a corpus; build it if it is missing, or the corpus has changed.

    The index is stored beside the corpus, or in the user's cache if that folder is not writable.
    """
    try:
        if "://" in path or Path(path).is_dir():
            folder, name = Folder(path), "cuts"  # lhotse does not read cuts.index
            mine = ("cuts.", "recording.")
            files = {each: at for each, at in folder.stamps().items() if each.startswith(mine)}
        else:
            folder, name = Folder(str(Path(path).parent)), Path(path).name
            files = {name: folder.stamp(name)}
        refuse_undecodable(path, files)
    except ManifestError:
        raise
    except Exception as error:  # object stores raise their own types
        raise ManifestError(f"{path} cannot be read: {shown(error, 300)}") from None
    beside = folder.path(f"{name}.index")
    places = [Path(beside)] if folder.is_local else []
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if not cache.startswith("~"):  # a user without a home
        digest = hashlib.sha256(os.fsencode(beside)).hexdigest()
        places.append(Path(cache, "asrkit", "index", digest[:32]))
    for place in filter(Path.exists, places):
        index = opened_index(path, folder, place)
        known = index.description.files
        changed = [n for n in known.keys() | files.keys() if known.get(n) != files.get(n)]
        if not changed:
            return index
        logger.warning("%s: %s has changed; the index is rebuilt", path, shown(min(changed)))
    for place in places:
        with suppress(PermissionError):
            make_index(path, folder, files, place)
            return opened_index(path, folder, place)
    raise ManifestError(
        f"the index of {path} cannot be written beside it or in {cache}: set XDG_CACHE_HOME"
    )


def refuse_undecodable(path: str, files: Iterable[str] = ()) -> None:
    """Raise ManifestError if the path of a corpus, or the name of one of its files, is not text."""
    if any("\ud800" <= letter <= "\udfff" for letter in "".join([path, *files])):
        raise ManifestError(f"{shown(path)}: its name or that of a file is not UTF-8: rename it")


def make_index(path: str, folder: Folder, files: dict[str, Stamp], place: Path) -> None:
    """Write or replace an index; raise PermissionError for a folder that is not writable."""
    with ExitStack() as stack:
        stack.enter_context(suppress(FileExistsError))  # another process has just written it
        try:
            part = stack.enter_context(new_folder(place))
        except OSError as error:  # also for a read-only file system
            raise PermissionError from error
        if folder.is_local or not copy_index(folder, files, part):
            write_index(path, folder, files, part)
        with suppress(FileNotFoundError):
            remove_folder(place)


def copy_index(folder: Folder, files: dict[str, Stamp], place: Path) -> bool:
    """Copy the index beside shards in an object store; False if it is missing or does not match.

    Only sizes are compared: the files' times differ from those when the index was built.
    """
    try:
        for name in (ROWS, LINES, DESCRIPTION):
            folder.system.get_file(folder.path(f"cuts.index/{name}"), str(place / name))
        description = Description.model_validate_json((place / DESCRIPTION).read_bytes())
    except (OSError, ValueError):
        return False
    built, now = ({n: s.size for n, s in each.items()} for each in (description.files, files))
    if built != now:
        return False
    description = description.model_copy(update={"files": files})
    (place / DESCRIPTION).write_text(description.model_dump_json(indent=1))
    return True


def write_index(path: str, folder: Folder, files: dict[str, Stamp], place: Path) -> None:
    """Write the index of these files into an empty folder."""
    shards = sorted(name for name in files if name.endswith(".tar"))
    numbers = {name: number for number, name in enumerate(shards)}
    left_out: list[LeftOut] = []
    pieces, position, digest = [np.zeros(0, ROW)], 0, hashlib.sha256()
    rows: list[tuple[Any, ...]] = []
    with (place / LINES).open("wb") as lines:
        found = utterances_in(path, folder, files, left_out)
        for cut, shard, member in tqdm(found, f"index of {path}", disable=None, unit=" utt"):
            line = json.dumps(cut.to_dict()).encode() + b"\n"
            lines.write(line)
            digest.update(line)
            text = len(text_of(cut).strip())
            rows.append((position, len(line), numbers.get(shard, -1), *member,
                         cut.duration, cut.sampling_rate, text))  # fmt: skip
            position += len(line)
            if len(rows) == 100_000:  # an array takes a tenth of the memory
                pieces.append(np.array(rows, ROW))
                rows = []
    table = np.concatenate([*pieces, np.array(rows, ROW)])
    table.tofile(place / ROWS)
    description = Description(
        files=files, shards=shards, count=len(table),
        rows_sha256=hashlib.sha256(table.tobytes()).hexdigest(),
        lines_sha256=digest.hexdigest(), lines_size=position,
        left_out=[(each.id, each.reason) for each in left_out],
    )  # fmt: skip
    (place / DESCRIPTION).write_text(description.model_dump_json(indent=1))


def utterances_in(
    path: str, folder: Folder, files: dict[str, Stamp], left_out: list[LeftOut]
) -> Iterator[tuple[Cut, str, tuple[int, int]]]:
    """Yield the cuts of a corpus in the order of its files, each with shard, offset and size.

    Unusable utterances are appended to `left_out`, including all that cannot be reached in a
    missing or damaged shard.
    """
    manifests = sorted(name for name in files if ".jsonl" in name)
    if not manifests:
        raise ManifestError(f"{path} has no cuts.….jsonl.gz: a folder must have lhotse's Shar")
    is_shar = any(name.startswith("recording.") for name in files)
    for name in manifests:
        shard = f"recording{name.removeprefix('cuts').partition('.jsonl')[0]}.tar"
        members = members_of(folder, shard) if is_shar else None
        lost = None  # reason why the rest of the shard cannot be used
        with folder.open(name) as file:
            for number, line in lines_in(file, f"{path}: {name}"):
                try:
                    cut = deserialize_item(json.loads(line))
                    if not isinstance(cut.id, str):
                        raise TypeError(f"'id' must be a text, got {shown(cut.id)}")
                    member = None
                    if members is not None and lost is None:
                        member, lost = next_member(members, cut, shard)
                    if lost is not None or (member and member.recording is None):
                        left_out.append(LeftOut(printable(cut.id), lost or "no audio in its shard"))
                        continue
                    if member is not None:
                        cut.recording = recording_of(member)
                    cut = inert(cut, path)
                except pydantic.ValidationError as error:
                    if not leaves_out(error):
                        raise ManifestError(
                            f"{path}: {name}:{number}: {what_is_wrong(error)}"
                        ) from None
                    left_out.append(LeftOut(f"{name}:{number}", what_is_wrong(error)))
                    continue
                except Exception as error:  # lhotse raises many types for a damaged manifest
                    raise ManifestError(
                        f"{path}: {name}:{number} is not one of lhotse's cuts (folders and .gz "
                        f"files must have them): {shown(error, 300)}"
                    ) from error
                yield cut, shard, (member.offset, member.size) if member else (0, 0)


def next_member(
    members: Iterator[Member], cut: Cut, shard: str
) -> tuple[Member | None, str | None]:
    """Return the next recording of a shard if it belongs to the cut, or the reason why not."""
    try:
        member = next(members, None)
    except FileNotFoundError:
        return None, f"{shard} is missing"
    except (OSError, tarfile.TarError, ValueError, EOFError) as error:
        return None, f"{shard} cannot be read at this cut: {shown(error, 200)}"
    if member is None or member.id != cut.id:
        return None, f"{shard} has {shown(member and member.id)} in its place"
    return member, None


def members_of(folder: Folder, shard: str) -> Iterator[Member]:
    """Yield the recordings of a shard from the headers of its tar: pairs of audio and JSON.

    Raises:
        ValueError: for a member that is not a plain file, or not in a pair.
        OSError, tarfile.TarError: if the shard cannot be read, or is compressed.
    """
    with folder.open(shard) as file, tarfile.open(fileobj=file, mode="r:") as tar:
        audio = None
        while (member := tar.next()) is not None:
            tar.members = []  # type: ignore[attr-defined] # otherwise the list grows with the shard
            if member.type not in tarfile.REGULAR_TYPES or member.issparse():
                raise ValueError(f"{shown(member.name)} is not a plain file")
            if audio is None:
                audio = member
                continue
            (key, _), (of, kind) = os.path.splitext(audio.name), os.path.splitext(member.name)
            if key != of or kind not in (".json", ".nometa"):
                raise ValueError(f"{shown(member.name)} does not describe {shown(audio.name)}")
            if audio.size > MAX_MEMBER or member.size > MAX_JSON:
                raise ValueError(f"{shown(key)} has {audio.size} bytes")
            text = tar.extractfile(member) if audio.size and kind == ".json" else None
            found = json.loads(text.read()) if text is not None else None
            yield Member(key, audio.offset_data, audio.size, found)
            audio = None


def recording_of(member: Member) -> Recording:
    """Return the recording that a shard describes, with its audio in memory and not yet read."""
    recording = Recording.from_dict(member.recording)
    source = AudioSource(type="memory", channels=recording.channel_ids, source="")
    recording.sources = [source]
    return recording
