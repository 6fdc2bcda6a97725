"""`asrkit decode --confident` writes a manifest of the texts that are likely to be right."""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from asrkit.data.inputs import read_recordings
from asrkit.data.manifest import read_manifest
from tests.conftest import speech, write_manifest, write_wav
from tests.running import run

Shown = Callable[..., str]
SECONDS = [1.5, 1.0, 2.1, 2.4, 2.7, 3.0]


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """Six recordings, of which one is a part of a file and one has a text."""
    (tmp_path / "new").mkdir()
    lines = []
    for i in range(6):
        path = write_wav(tmp_path / "new" / f"{i}.wav", speech(1.5 + 0.3 * i, seed=i))
        lines.append({"id": f"u{i}", "audio": path.name, "speaker": f"s{i}"})
    lines[1] |= {"start": 0.5, "duration": 1.0}
    lines[2] |= {"text": "abc"}
    return write_manifest(tmp_path / "new" / "new.jsonl", *lines)


def test_the_confident_ones_are_kept_and_the_rest_is_counted(
    model: Path, new: Path, shown: Shown, caplog: pytest.LogCaptureFixture
) -> None:
    lines = shown("decode", "--model", model, "--manifest", new, "--format", "jsonl").splitlines()
    every = {
        each["id"]: (each["text"], mean(word["confidence"] for word in each["words"]), seconds)
        for each, seconds in zip(map(json.loads, lines), SECONDS, strict=True)
    }
    least = sorted(confidence for _, confidence, _ in every.values())[3] - 1e-6
    output = new.parents[1] / "pseudo.jsonl"
    command = "decode", "--model", model, "--manifest", new, "--output", output, "--confident"
    (told,) = shown(*command, least).splitlines()
    rows = {row["id"]: row for row in map(json.loads, output.read_text().splitlines())}
    assert rows.keys() == {name for name, (_, sure, _) in every.items() if sure >= least}
    assert len(rows) == 3  # control: some are not
    for name, row in rows.items():
        text, confidence, seconds = every[name]
        assert (row["text"], row["speaker"]) == (text, f"s{name[1]}")
        assert row["confidence"] == pytest.approx(confidence, abs=1e-3)
        assert row["duration"] == pytest.approx(seconds, abs=1e-3)
    kept = sum(every[name][2] for name in rows)
    whole = f"3 of 6 recordings, {kept:.0f} of {sum(SECONDS):.0f} s"
    assert f"{whole}; 3 have a confidence below" in told
    assert ("WER of the kept" in told) == ("u2" in rows)
    # All of them, and what training reads is what decoding read.
    assert "0 have a confidence below 0, 0 no words; WER of the kept" in shown(*command, 0)
    before, after = ([*read_manifest(path)] for path in (new, output))
    assert "unused keys" not in caplog.text
    for old, pseudo in zip(before, after, strict=True):
        assert Path(pseudo.audio).resolve() == Path(old.audio).resolve()
        assert (pseudo.start or 0.0) == (old.start or 0.0)
        assert pseudo.duration == pytest.approx(every[old.id][2], abs=1e-3)


def test_files_and_channels(model: Path, tmp_path: Path, shown: Shown) -> None:
    path = write_wav(tmp_path / "a.wav", speech(2.0).repeat(2).reshape(-1, 2))
    output = tmp_path / "p.jsonl"
    options = "--model", model, "--output", output, "--confident", 0
    shown("decode", *options, "--channel", 1, path)
    (row,) = map(json.loads, output.read_text().splitlines())
    assert row["channel"] == 1
    assert Path(output.parent, row["audio"]).samefile(path)


def test_nothing_is_confident(model: Path, new: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = new.with_name("p.jsonl")
    options = "--model", model, "--manifest", new, "--output", output
    assert run("decode", *options, "--confident", 1) == 2
    assert "p.jsonl not written: 0 of 6 recordings" in capsys.readouterr().err
    assert not output.exists()


X = ["--output", "x.jsonl"]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--confident", "0.5"], "--confident P and --output FILE belong together"),
        (X, "--confident P and --output FILE belong together"),
        (["--confident", "0.5", *X, "--nbest", "2"], "does not take --nbest"),
        (["--confident", "0.5", *X, "--format", "csv"], "not take --format"),
        (["--confident", "1.5", *X], "1.5"),
    ],
)
def test_mistakes(
    more: list[str], told: str, model: Path, new: Path, refused: Shown,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(model.parent)
    assert told in refused("decode", "--model", model, "--manifest", new, *more)
    assert not Path("x.jsonl").exists()


def test_a_manifest_names_recordings_inside_shards(model: Path, new: Path, tmp_path: Path) -> None:
    shards, output = tmp_path / "shards", tmp_path / "x.jsonl"
    assert run("data", "shard", new, "--output", shards) == 0
    options = "--manifest", shards, "--confident", 0, "--output", output
    assert run("decode", "--model", model, *options) == 0
    expected = list(read_recordings(str(shards), []))
    found = {each.id: each for each in read_manifest(output)}
    assert 0 < len(found) <= len(expected)
    for each in expected:
        assert np.array_equal(found.get(each.id, each).load(), each.load())
