"""Shards: what is packed is read as from files, by offset; what is wrong is refused or named."""

import gzip
import hashlib
import io
import json
import os
import pickle
import tarfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from lhotse import CutSet

from asrkit.data import index_writer
from asrkit.data.cut_audio import load_samples
from asrkit.data.cuts import load_cuts, perturb_speed, text_of
from asrkit.data.dataset import SpeechDataset
from asrkit.data.index import DESCRIPTION, ROW, ROWS
from asrkit.data.index_writer import index_of
from asrkit.data.indexed_cuts import IndexedCuts, durations_of
from asrkit.data.manifest import ManifestError
from asrkit.data.sampling import EpochBatches
from asrkit.data.storage import Folder
from tests.conftest import speech, write_manifest, write_wav
from tests.data.encoding import ENCODE
from tests.running import run

SPEEDS = (0.9, 1.0, 1.1)


@pytest.fixture
def shards(corpus: Path) -> Path:
    """The training set in shards of five."""
    folder = corpus / "shards"
    arguments = ("--output", folder, "--shard-size", 5)
    assert run("data", "shard", corpus / "train.jsonl", *arguments) == 0
    return folder


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The parts of shards that are read: name and offset."""
    found, read = [], Folder.read

    def recorded(self: Folder, name: str, start: int, size: int) -> bytes:
        if name.endswith(".tar"):
            found.append((name, start))
        return read(self, name, start, size)

    monkeypatch.setattr(Folder, "read", recorded)
    return found


def test_shards_hold_what_the_files_do(corpus: Path) -> None:
    """Also parts of files, stereo, other rates, at each speed; also read by lhotse."""
    stereo = speech(2.0, rate=44100)[:, None].repeat(2, axis=1)
    write_wav(corpus / "stereo.wav", stereo, 44100)
    lines = [json.loads(line) for line in (corpus / "train.jsonl").read_text().splitlines()]
    part = {"audio": "stereo.wav", "text": "è", "speaker": "s", "start": 0.5, "duration": 1.0}
    whole = {"id": "a/b.c", "audio": "stereo.wav", "text": "no"}
    path = write_manifest(corpus / "m.jsonl", *lines, {"id": "part", **part}, whole)
    output = corpus / "shards"
    assert run("data", "shard", path, "--output", output, "--shard-size", "5") == 0
    files = load_cuts(path, [])
    at_speeds = perturb_speed(files, list(SPEEDS))
    found = IndexedCuts(index_of(str(output)), SPEEDS)
    assert np.array_equal(found.durations, durations_of(at_speeds))
    for ours, theirs in zip(found, at_speeds, strict=True):
        assert (ours.id, text_of(ours)) == (theirs.id, text_of(theirs))
        assert ours.supervisions[0].speaker == theirs.supervisions[0].speaker
        if not ours.id.startswith("part_sp"):  # which begins at another fraction of a sample
            np.testing.assert_allclose(load_samples(ours), load_samples(theirs), atol=2**-14)
    lhotse = CutSet.from_shar(in_dir=output)  # which takes no notice of the index
    assert [(cut.id, cut.duration) for cut in lhotse] == [(cut.id, cut.duration) for cut in files]
    with tarfile.open(output / "recording.000002.tar") as tar:  # pairs, as webdataset reads them
        assert tar.getnames()[-2:] == ["a/b.c.wav", "a/b.c.json"]


def test_planning_reads_no_audio_and_a_rank_its_own(
    shards: Path, reads: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    cuts = IndexedCuts(index_of(str(shards)))
    rows = [(f"recording.{row['shard']:06d}.tar", row["offset"] - 512) for row in cuts.index.rows]
    dataset = SpeechDataset(cuts, ENCODE)

    def read_by(rank: int, start: int = 0) -> list[tuple[str, int]]:
        reads.clear()
        batches = list(EpochBatches(cuts.durations, 4.0, 2, 0, 0, start, rank, world_size=2))
        assert not reads
        assert [dataset[batch].left_out for batch in batches] == [[]] * len(batches)
        assert reads == [rows[place] for _, places in batches for place in places]
        return list(reads)

    first, second = read_by(0), read_by(1)
    assert sorted(first + second) == sorted(rows)  # each by one rank, once
    assert 0 < len(first) < len(rows)
    assert read_by(0, start=2) == first[-len(read_by(0, start=2)) :]
    assert len(read_by(0, start=2)) < len(first)
    # Control: a rank that reads what is not its own is found.
    getitem = IndexedCuts.__getitem__
    monkeypatch.setattr(
        IndexedCuts, "__getitem__", lambda self, place: (getitem(self, 0), getitem(self, place))[1]
    )
    with pytest.raises(AssertionError):
        read_by(1)


def test_control_lhotse_reads_all_audio(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To begin in the middle, as training did before there was an index."""
    read, extractfile = [], tarfile.TarFile.extractfile

    def recorded(self: tarfile.TarFile, member: Any) -> Any:
        read.append(member)
        return extractfile(self, member)

    monkeypatch.setattr(tarfile.TarFile, "extractfile", recorded)
    list(CutSet.from_shar(in_dir=shards))
    assert len([member for member in read if member.name.endswith(".flac")]) == 12


def test_other_processes_open_the_same_index(shards: Path) -> None:
    cuts = IndexedCuts(index_of(str(shards)), SPEEDS)
    cuts = cuts.chosen(cuts.durations < 1.5).chosen(cuts.durations[cuts.durations < 1.5] > 1.1)
    sent = pickle.dumps(cuts)
    assert len(sent) < 1000  # not the rows
    again = pickle.loads(sent)
    assert [cut.id for cut in again] == [cut.id for cut in cuts]
    assert 5 < len(again) < 30
    change_line(shards / "cuts.000000.jsonl.gz", "yes no", "no yes")
    with pytest.raises(ManifestError, match="differs here from the first rank"):
        pickle.loads(sent)


def change_line(path: Path, old: str, new: str) -> None:
    import gzip

    text = gzip.decompress(path.read_bytes()).decode()
    assert old in text
    path.write_bytes(gzip.compress(text.replace(old, new).encode()))


def test_an_index_is_made_once_and_anew_for_other_files(
    shards: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = index_of(str(shards))
    monkeypatch.setattr(index_writer, "make_index", None)  # not called
    index_of(str(shards))
    monkeypatch.undo()
    change_line(shards / "cuts.000001.jsonl.gz", "yes no", "no yes")
    after = index_of(str(shards))
    assert "cuts.000001.jsonl.gz' has changed; the index is rebuilt" in caplog.text
    assert after.text(6) == "no yes"
    with pytest.raises(ManifestError, match=r"lines.jsonl has changed"):  # not the new text
        before.read(6)


def test_cuts_in_json_lines_are_indexed_too(corpus: Path) -> None:
    """In a file of any compression, whose audio is in files of its own."""
    cuts = load_cuts(corpus / "train.jsonl", [])
    for name in ("cuts.jsonl", "cuts.jsonl.gz"):
        cuts.to_file(corpus / name)
        found = IndexedCuts(index_of(str(corpus / name)))
        assert found.index.place == corpus / f"{name}.index"
        assert [text_of(cut) for cut in found] == [text_of(cut) for cut in cuts]
        assert np.array_equal(load_samples(found[7]), load_samples(cuts[7]))
        assert found.index.text(7) == text_of(cuts[7])


def test_where_nothing_can_be_written_the_index_is_in_the_cache(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shards / "cuts.index").rename(tmp_path / "moved")
    make = index_writer.new_folder

    def refused(path: Path) -> AbstractContextManager[Path]:
        if path.parent == shards:
            raise PermissionError(13, "Permission denied", str(path))
        return make(path)

    monkeypatch.setattr(index_writer, "new_folder", refused)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for _ in range(2):
        assert index_of(str(shards)).place.parent == tmp_path / "cache" / "asrkit" / "index"
    assert not (shards / "cuts.index").exists()
    # A user without a home, as in a container with another user id.
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    with pytest.raises(ManifestError, match="cannot be written beside it or in ~/"):
        index_of(str(shards))


def test_an_object_store(shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the index that was uploaded with the shards, and one that is made of them."""
    store, url = fsspec.filesystem("memory"), "memory://bucket/train"
    store.put(str(shards), "/bucket/train", recursive=True)
    here = IndexedCuts(index_of(str(shards)), SPEEDS)
    for number in range(3):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"cache{number}"))
        with monkeypatch.context() as patch:
            if number == 0:  # it is not made
                patch.setattr(index_writer, "write_index", None)
            there = IndexedCuts(index_of(url), SPEEDS)
        assert there.fingerprint() == here.fingerprint()
        assert np.array_equal(load_samples(there[20]), load_samples(here[20]))
        if number == 0:  # now the uploaded one is of other shards
            pairs = store.cat_file("/bucket/train/recording.000000.tar")
            store.pipe_file("/bucket/train/recording.000000.tar", pairs + bytes(512))
        if number == 1:
            store.rm("/bucket/train/cuts.index", recursive=True)
    with pytest.raises(ManifestError, match="nosuch"):
        index_of("nosuch://bucket/train")


def replaced(folder: Path, change: Callable[[np.ndarray, dict[str, Any]], None]) -> None:
    """Change an index, and write the checksum that it would have."""
    place = folder / "cuts.index"
    rows, description = (
        np.fromfile(place / ROWS, ROW),
        json.loads((place / DESCRIPTION).read_text()),
    )
    change(rows, description)
    rows.tofile(place / ROWS)
    description["rows_sha256"] = hashlib.sha256(rows.tobytes()).hexdigest()
    (place / DESCRIPTION).write_text(json.dumps(description))


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("offset", 2**63 + 5, "row 3 has an offset out of bounds"),
        ("offset", 2**63 - 600, "row 3 has an offset out of bounds"),
        ("offset", 0, "row 3 has an offset out of bounds"),
        ("size", 2**32 - 1, "row 3 has an offset out of bounds"),
        ("size", 0, "row 3 has a size out of bounds"),
        ("shard", 7, "row 3 has a shard out of bounds"),
        ("shard", -5, "row 3 has a shard out of bounds"),
        ("line", 2**63 - 1, "row 3 has a line out of bounds"),
        ("line_size", 2**31, "row 3 has a line out of bounds"),
        ("duration", np.nan, "row 3 has a duration out of bounds"),
        ("duration", 1e300, "row 3 has a duration out of bounds"),
        ("rate", 0, "row 3 has a sample rate out of bounds"),
    ],
)
def test_numbers_out_of_bounds_are_refused(
    column: str, value: float, told: str, shards: Path
) -> None:
    def change(rows: np.ndarray, _: dict[str, Any]) -> None:
        rows[column][3] = value

    index_of(str(shards))
    replaced(shards, change)
    with pytest.raises(ManifestError, match=told):
        index_of(str(shards))


def test_a_damaged_index_is_refused(shards: Path) -> None:
    place = shards / "cuts.index"
    whole = {path: path.read_bytes() for path in place.iterdir()}
    rows = whole[place / ROWS]
    description = json.loads(whole[place / DESCRIPTION])
    outside = description | {"shards": ["../x.tar"], "files": {"../x.tar": [10, ""]}}
    for name, content in (
        (ROWS, rows[:-1]), (ROWS, rows[:-1] + b"\1"), (ROWS, b""),
        (DESCRIPTION, json.dumps(outside).encode()), (DESCRIPTION, b"{}"),
        ("lines.jsonl", whole[place / "lines.jsonl"][:-1]),
    ):  # fmt: skip
        (place / name).write_bytes(content)
        with pytest.raises(ManifestError, match="delete this folder to rebuild the index"):
            index_of(str(shards))
        (place / name).write_bytes(whole[place / name])
    index_of(str(shards))


def test_a_row_of_another_utterance_is_found(shards: Path) -> None:
    """Rows that are in bounds, but point at no utterance, or at another's line."""

    def change(rows: np.ndarray, _: dict[str, Any]) -> None:
        rows["offset"][0] += 512
        rows["size"][1] -= 1
        rows["line"][2] += 1
        rows["line"][3], rows["line_size"][3] = rows["line"][4], rows["line_size"][4]

    replaced(shards, change)
    batch = SpeechDataset(IndexedCuts(index_of(str(shards))), ENCODE)[("a", [0, 1, 2, 3, 4])]
    assert batch.ids == ["train4"]
    assert [each.id for each in batch.left_out] == [f"utterance {i}" for i in range(4)]
    assert batch.num_bad == 4


def test_a_line_runs_nothing(shards: Path, tmp_path: Path) -> None:
    """A cut whose audio is a command, in place of the one that was indexed."""
    lines = shards / "cuts.index" / "lines.jsonl"
    text = lines.read_text()
    source = '"type": "memory", "channels": [0], "source": ""'
    command = f'"type": "command","channels":[0],"source":"touch {tmp_path}/ran"'
    first, _ = text.split("\n", 1)
    hostile = first.replace(source, command)
    assert command in hostile

    def change(rows: np.ndarray, description: dict[str, Any]) -> None:
        rows["line"][0], rows["line_size"][0] = len(text), len(hostile)
        description["lines_size"] += len(hostile)

    lines.write_text(text + hostile)
    replaced(shards, change)
    with pytest.raises(
        ManifestError, match=r"line 1 was changed or damaged .*must be of type file or memory"
    ):
        load_samples(IndexedCuts(index_of(str(shards)))[0])
    assert not (tmp_path / "ran").exists()


def rewritten(shard: Path, change: Callable[[int, tarfile.TarInfo], bytes | None]) -> None:
    """A shard whose members are changed: new content, or None for as it was."""
    with tarfile.open(shard) as old:
        members = [(member, old.extractfile(member).read()) for member in old]  # type: ignore[union-attr]
    with tarfile.open(shard, "w") as new:
        for number, (member, content) in enumerate(members):
            changed = change(number, member)
            content = content if changed is None else changed
            member.size = len(content) if member.isreg() else 0
            new.addfile(member, io.BytesIO(content))


def test_what_is_lost_of_bad_shards_is_named(shards: Path) -> None:
    """A missing one, a damaged one, a link to a file outside: all that cannot be reached."""

    def link(number: int, member: tarfile.TarInfo) -> None:
        if number == 4:
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/hostname"

    (shards / "recording.000000.tar").unlink()
    rewritten(shards / "recording.000001.tar", link)
    content = (shards / "recording.000002.tar").read_bytes()
    (shards / "recording.000002.tar").write_bytes(content[: len(content) // 2])
    index = index_of(str(shards))
    usable = [index.described(i).id for i in range(len(index.rows))]
    assert usable == ["train5", "train6", "train10"]
    reasons = {each.id: each.reason for each in index.left_out}
    assert reasons["train0"] == reasons["train4"] == "recording.000000.tar is missing"
    assert "'train7.flac' is not a plain file" in reasons["train7"]
    assert reasons["train11"].startswith("recording.000002.tar ")
    assert len(reasons) == 9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"duration": 1e308}, None),  # impossible: the cut is left out
        ({"id": "\udc00"}, None),
        ({"id": 5}, r"cuts\.000000\.jsonl\.gz:1 is .*: .*'id' must be a text, got 5"),
        ({"type": "NoCut"}, r"cuts\.000000\.jsonl\.gz:1 is not one of lhotse's cuts"),
    ],
)
def test_a_cut_of_a_shard_that_is_wrong_is_named(
    shards: Path, change: dict[str, Any], message: str | None
) -> None:
    path = shards / "cuts.000000.jsonl.gz"
    first, *others = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    line = json.dumps(json.loads(first) | change).encode() + b"\n"
    path.write_bytes(gzip.compress(b"".join([line, *others])))
    if message is None:
        index = index_of(str(shards))
        lost = {each.id: each.reason for each in index.left_out}
        if "id" in change:  # the rest of the shard cannot be reached
            assert lost["\\udc00"] == "recording.000000.tar has 'train0' in its place"
        else:
            assert lost[f"{path.name}:1"].startswith("'duration': input should be less than")
        assert len(index.rows) == 12 - len(lost)
    else:
        with pytest.raises(ManifestError, match=message):
            index_of(str(shards))


def test_names_of_shards_are_utf_8(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Except those of folders above the one that the user names."""
    odd = os.fsdecode(b"\xff")
    shards.parent.rename(shards.parent.with_name(odd))
    monkeypatch.chdir(shards.parent.with_name(odd))
    assert len(index_of("shards").rows) == 12
    os.rename("shards", odd)
    with pytest.raises(ManifestError, match=r"'\\udcff': its name or .* is not UTF-8: rename it"):
        index_of(odd)
    os.rename(odd, "shards")
    os.rename("shards/cuts.000000.jsonl.gz", f"shards/cuts.{odd}.jsonl.gz")
    with pytest.raises(ManifestError, match=r"'shards': its name or that of a file is not UTF-8"):
        index_of("shards")


def test_a_shard_that_changes_while_it_is_read(shards: Path) -> None:
    """Another one in its place, and none."""
    dataset = SpeechDataset(IndexedCuts(index_of(str(shards))), ENCODE)
    assert dataset[("a", [0, 5, 10])].left_out == []
    rewritten(shards / "recording.000000.tar", lambda number, _: b"x" if number == 2 else None)
    (shards / "recording.000001.tar").unlink()
    batch = dataset[("a", [0, 5, 10])]
    assert batch.ids == ["train10"]
    assert batch.num_bad == 2
    first, second = (each.reason for each in batch.left_out)
    assert first.endswith(
        "recording.000000.tar has changed since it was indexed, see docs/training.md"
    )
    assert second.endswith("recording.000001.tar is missing")


def test_a_folder_that_is_none_of_shards(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("no shard")
    with pytest.raises(ManifestError, match=r"has no cuts"):
        index_of(str(tmp_path))
    plain = write_manifest(tmp_path / "m.jsonl", {"id": "a", "audio": "x.wav", "text": "no"})
    assert not index_writer.can_be_indexed(str(plain))


def test_the_command_shard(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = corpus / "shards"
    (corpus / "audio" / "train3.flac").unlink()
    train = corpus / "train.jsonl"
    assert run("data", "shard", train, "--output", output) == 0
    found = capsys.readouterr()
    assert found.out == f"{output}: 11 utterances, 0.00 h in 1 shards; 1 left out\n"
    assert "train3.flac does not exist" in found.err
    assert run("data", "shard", train, "--output", output) == 2
    assert "exists already" in capsys.readouterr().err
    assert run("data", "shard", train) == run("data", "shard", train, train) == 2
    for path in (corpus / "audio").glob("train*"):
        path.unlink()
    assert run("data", "shard", train, "--output", corpus / "none") == 2
    assert not [path for path in corpus.iterdir() if "none" in path.name or path.suffix == ".part"]
