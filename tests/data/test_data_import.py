"""`asrkit data import`: corpora of other forms in, manifests divided by speaker out."""

import json
from pathlib import Path
from typing import Any

import pytest

from asrkit.data.manifest import read_manifest
from asrkit.data.splits import taken, voices_of
from tests.conftest import speech, write_wav
from tests.running import run

Output = pytest.CaptureFixture[str]
SPEAKERS = ("anna", "bob", "eve")


def imported(
    out: Path, kind: str, *arguments: object, status: int = 0
) -> dict[str, dict[str, Any]]:
    """Import into a new folder; return the lines of its manifests by id. asrkit reads them all."""
    assert run("data", "import", kind, *arguments, "--output", out) == status
    found = {}
    for manifest in sorted(out.glob("*.jsonl")):
        assert all(Path(each.audio).is_file() for each in read_manifest(manifest))
        for line in manifest.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            assert row["id"] not in found
            found[row["id"]] = row | {"split": manifest.stem}
    return found


def sound(path: Path, seconds: float = 0.2, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_wav(path, speech(seconds, seed=len(str(path))), **options)


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """Two recordings of each of three speakers, with texts beside them."""
    folder = tmp_path / "recordings"
    for speaker in SPEAKERS:
        for number in range(2):
            path = sound(folder / speaker / f"{number}.wav", 0.2 + 0.1 * number)
            path.with_suffix(".txt").write_text(f"{speaker} says\n{number} \n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("kind", ["auto", "folder"])
def test_a_folder(kind: str, recordings: Path, tmp_path: Path, capsys: Output) -> None:
    found = imported(tmp_path / "out", kind, recordings)
    assert sorted(found) == [f"{name}-{i}" for name in SPEAKERS for i in (0, 1)]
    one = found["bob-1"]
    assert one["audio"] == "../recordings/bob/1.wav"
    assert (one["text"], one["speaker"]) == ("bob says 1", "bob")
    assert (one["duration"], one["sample_rate"], one["num_channels"]) == (0.3, 16000, 1)
    parts = {(each["speaker"], each["split"]) for each in found.values()}
    assert len(parts) == 3  # no speaker is in both
    line = capsys.readouterr().out
    assert "train 4 utterances, 0.0 min, 2 speakers; dev 2 utterances, 0.0 min, 1 speaker" in line


def test_what_is_left_out_is_counted(
    recordings: Path, tmp_path: Path, capsys: Output, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        sound(recordings / "eve" / f"x{number}.wav")
    (recordings / "bob/2.txt").write_text("no audio")
    (recordings / "bob/0.txt").write_text(" \n")
    (recordings / "anna/0.txt").write_bytes("für".encode("cp1252"))
    (recordings / "anna/1.wav").write_bytes(b"RIFF")
    sound(recordings / "bob/1.flac")
    (recordings / "notes.pdf").write_bytes(b"%PDF")
    (recordings / ".hidden.wav").write_bytes(b"")
    (recordings / "linked").symlink_to(recordings / "eve")
    found = imported(tmp_path / "out", "folder", recordings, status=1)
    assert sorted(found) == ["bob-1", "eve-0", "eve-1"]
    errors = capsys.readouterr().err
    for line in (
        "left out 5, audio without a text beside it: eve/x0.wav; eve/x1.wav; eve/x2.wav; …",
        "left out 1, text without audio beside it: bob/2.txt",
        "left out 1, empty text: ",
        "left out 1, text that cannot be read: ",
        "left out 1, audio that cannot be read: ",
        "left out 1, file with the name of another: bob/1.wav",
    ):
        assert line in errors
    assert "not UTF-8: convert the file" in errors
    for name in ("linked", "notes.pdf"):
        assert f"not read, by their names or as links: 1, {recordings / name}" in caplog.text
    assert ".hidden" not in errors


def test_dev_does_not_depend_on_where_the_audio_lies() -> None:
    found, said = [], list[str]()
    for place in range(6):  # by paths, six places would agree once in 8 ** 5
        rows = [{"id": n, "audio": f"/{place}/{n}.wav", "duration": 1.0} for n in "abcdefgh"]
        found.append([row["id"] for row in taken(rows, 0.1, said.append)[1]])
    assert found[0]
    assert found == 6 * found[:1]
    assert "no speaker is known: dev is split by recording" in said[0]


def test_train_alone(recordings: Path, tmp_path: Path) -> None:
    imported(tmp_path / "out", "auto", recordings, "--dev", 0)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["train.jsonl"]


LINE = b'{"path": "a.wav", "sentence": "one", "text": "x"}'
LHOTSE = b'{"id": "a", "recording_id": "a", "sources": []}'
ONLY = "has no effect on the kind folder, only on table, "
REFUSED = [  # kind, name, contents, option, error; "empty" is a folder
    ("auto", "missing", b"", "--dev=0", "does not exist"),
    ("auto", "https://host/a.csv", b"", "--dev=0", "https://host/a.csv is a URL, but asrkit"),
    ("auto", "a.pdf", b"%PDF", "--dev=0", "is not recognised: the kinds are folder, table, man"),
    ("auto", "empty", b"", "--dev=0", "no utterance can be used; nothing is written"),
    ("table", "empty", b"", "--dev=0", "empty: Is a directory"),
    ("webdataset", "empty", b"", "--dev=0", "invalid choice: 'webdataset'"),
    ("auto", "empty", b"", "--columns=audio=a", ONLY),
    ("auto", "empty", b"", "--audio-root=.", ONLY),
    ("auto", "empty", b"", "--output=/", "/ exists already: name a new folder"),
    *(("table", "a.csv", b"path,text\n", f"--columns={value}", "--columns: must be KEY=COLUMN")
      for value in ("audio", "audio=", "sound=x", "audio=a,audio=b")),
    ("table", "a.csv", b"path,text\n", "--columns=audio=no", "its columns are 'path', 'text'"),
    *(("table", "a.csv", content, "--dev=0", problem) for content, problem in (
        (b'path,sentence\na.wav,"yes\n', "correct the quotes of this line"),
        (b"path,up_votes\na,1\n", "has no column for text: name it with --columns text=COLUMN"),
        (b"path,text,sentence\na,1,2\n", "can both be text: name one with --columns text="),
        (b"f,t\na,1\n", "has no column for audio and text: name it with --columns audio=COL"),
        (b"\n", "is not a table with columns"), (b"path,text\na,f\xfcr\n", "not UTF-8"))),
    ("auto", "m.jsonl", b'{"f": "a", "t": "b"}', "--dev=0", "audio=COLUMN,text=COLUMN; its"),
    ("auto", "m.jsonl", LINE, "--dev=0", "can both be text: name one with --col"),
    *(("auto", f"a_{name}.jsonl", LHOTSE, "--dev=0", "has no cuts: make them with lhotse")
      for name in ("recordings", "supervisions")),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name", "content", "option", "problem"), REFUSED)
def test_what_cannot_be_imported(
    kind: str, name: str, content: bytes, option: str, problem: str, tmp_path: Path, capsys: Output
) -> None:
    (tmp_path / "empty").mkdir()
    if content:
        (tmp_path / name).write_bytes(content)
    command = ("data", "import", kind, tmp_path / name, "--output", tmp_path / "out", option)
    assert run(*command) == 2
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_manifests_are_divided_anew(recordings: Path, tmp_path: Path, capsys: Output) -> None:
    """As `data check` says of speakers in two manifests."""
    out, new = tmp_path / "out", tmp_path / "new"
    imported(out, "folder", recordings)
    train = (out / "train.jsonl").read_text().splitlines()
    dev = (out / "dev.jsonl").read_text().splitlines()
    row = json.loads(train[1])
    size = (out / row["audio"]).stat().st_size
    train[1] = json.dumps(row | {"track": 0, "num_bytes": size})  # keys that no other kind has
    (out / "train.jsonl").write_text("\n".join([*train[1:], dev[0]]))
    (out / "dev.jsonl").write_text("\n".join([train[0], dev[1]]))
    sets = out / "train.jsonl", out / "dev.jsonl"
    run("data", "check", *sets)
    assert "divide anew with asrkit data import manifest" in capsys.readouterr().out
    again = imported(new, "manifest", *sets)
    before = [json.loads(line) for line in train + dev]
    assert {row["id"]: row for row in before} == {
        name: {key: row[key] for key in row if key != "split"} for name, row in again.items()
    }
    speakers = [{row["speaker"] for row in again.values() if row["split"] == part}
                for part in ("train", "dev")]  # fmt: skip
    assert not speakers[0] & speakers[1]


def test_names_that_are_not_utf_8(tmp_path: Path, capsys: Output) -> None:
    for name in ("a", "b", "c\udcff"):
        path = sound(tmp_path / "in" / "x.wav")
        path.rename(tmp_path / "in" / f"{name}.wav")
        (tmp_path / "in" / f"{name}.txt").write_text("yes")
    assert sorted(imported(tmp_path / "out", "auto", tmp_path / "in", status=1)) == ["a", "b"]
    assert "left out 1, impossible value: c\\udcff: 'id': cannot be" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spoken", "groups"),
    [
        ("1:a 1:b 2:c 2:d", "a a c c"),  # dialogues
        ("1:a 1:b 2:a 2:b 3:a 3:b", "a a a a a a"),  # roles: divided by recording
        ("1:a 1:b 2:a 2:c 3:d", "a a a a d"),  # somebody who speaks with several
        ("1:c 1:b 2:a 2:c 3:-", "a a a a -"),
    ],
)
def test_who_speaks_in_one_recording_stays_together(spoken: str, groups: str) -> None:
    pairs = [word.split(":") for word in spoken.split()]
    rows = [{"audio": f, "speaker": None if speaker == "-" else speaker} for f, speaker in pairs]
    assert [each or "-" for each in voices_of(rows)] == groups.split()
