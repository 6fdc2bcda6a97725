"""Hugging Face's datasets as sources of `asrkit data import`."""

from pathlib import Path
from typing import Any

import pytest

from tests.data.test_data_import import Output, imported, sound
from tests.running import run

pyarrow = pytest.importorskip("pyarrow")


def table_of(tmp_path: Path, speakers: str = "aabbcc", **more: Any) -> Any:
    """A table as datasets' Audio has it: bytes and the name of the file."""
    rows: list[dict[str, Any]] = []
    for number, speaker in enumerate(speakers):
        path = sound(tmp_path / "made" / f"{speaker}/{number}.flac", 0.2 + number / 100)
        rows.append({
            "path": f"dir/{path.name}", "audio": {"bytes": path.read_bytes(), "path": path.name},
            "sentence": f"text {number}", "speaker_id": ord(speaker), "up_votes": 2,
            **{key: values[number] for key, values in more.items()},
        })  # fmt: skip
    return pyarrow.Table.from_pylist(rows)


def write_parquet(table: Any, path: Path) -> Path:
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(table, path)
    return path


def test_a_dataset(tmp_path: Path) -> None:
    path = write_parquet(table_of(tmp_path), tmp_path / "ds/data/train-00000-of-00001.parquet")
    for source, out in ((tmp_path / "ds", "out"), (path, "out2")):
        found = imported(tmp_path / out, "auto", source)
        assert sorted(found) == list("012345")
        assert {each["speaker"] for each in found.values()} == {"97", "98", "99"}
        one = found["3"]
        assert (one["text"], one["audio"], one["duration"]) == ("text 3", "audio/3.flac", 0.23)
        made = tmp_path / "made/b/3.flac"
        assert (tmp_path / out / "audio/3.flac").read_bytes() == made.read_bytes()


def test_parts_of_a_dataset_are_kept(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    for part, first in (("train", 0), ("validation", 2), ("test", 4)):
        write_parquet(table.slice(first, 2), tmp_path / f"ds/data/{part}-00000-of-00001.parquet")
    found = imported(tmp_path / "out", "huggingface", tmp_path / "ds")
    assert [found[name]["split"] for name in "012345"] == [
        "train", "train", "dev", "dev", "test", "test",
    ]  # fmt: skip


def test_bad_rows(tmp_path: Path, capsys: Output) -> None:
    table = table_of(tmp_path, text=["1", "2", "", None, "5", "6"]).drop_columns(["sentence"])
    sounds = table.column("audio").to_pylist()
    sounds[0] = {"bytes": None, "path": str(tmp_path / "made/a/0.flac")}  # a path alone
    sounds[1] = {"bytes": b"no audio", "path": "../../../x/y"}
    sounds[4] = {"bytes": None, "path": None}
    place = table.schema.get_field_index("audio")
    path = write_parquet(
        table.set_column(place, "audio", pyarrow.array(sounds)), tmp_path / "d.parquet"
    )
    found = imported(tmp_path / "out", "auto", path, status=1)
    assert {name: each["audio"] for name, each in found.items()} == {
        "0": "../made/a/0.flac", "5": "audio/5.flac",
    }  # fmt: skip
    errors = capsys.readouterr().err
    for line in (
        "left out 2, empty text: d.parquet: row 3; d.parquet: row 4",
        "left out 1, audio that cannot be read: ",
        "left out 1, impossible value: d.parquet: row 5: 'audio': field required",
    ):  # fmt: skip
        assert line in errors, errors
    assert sorted(each.name for each in (tmp_path / "out/audio").iterdir()) == ["5.flac", "y.mp3"]


def test_what_is_not_a_dataset(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"PAR1" + bytes(100))
    write_parquet(table_of(tmp_path).drop_columns(["sentence"]), tmp_path / "no-text.parquet")
    named = write_parquet(table_of(tmp_path), tmp_path / "latin1.parquet")  # a column's name
    named.write_bytes(named.read_bytes().replace(b"up_votes", "up_völes".encode("latin-1")))
    for name, problem in (
        ("bad.parquet", "cannot be read: "), ("latin1.parquet", "cannot be read: "),
        ("no-text.parquet", "has no column for text: name it"),
    ):  # fmt: skip
        assert run("data", "import", "auto", tmp_path / name, "--output", tmp_path / "out") == 2
        assert problem in capsys.readouterr().err
