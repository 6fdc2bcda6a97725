"""`asrkit decode --confident` writes a manifest of the texts that are likely to be right."""

import json
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from asrkit.data.inputs import read_recordings
from asrkit.data.manifest import read_manifest
from tests.conftest import speech, write_manifest, write_wav
from tests.running import run, talkative_model

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return talkative_model(tmp_path / "m.safetensors")


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


def decoded(model: Path, new: Path, capsys: Capture) -> dict[str, tuple[str, float, float]]:
    """Text, mean confidence of the words and seconds of each recording."""
    seconds = {f"u{i}": 1.0 if i == 1 else 1.5 + 0.3 * i for i in range(6)}
    assert run("decode", "--model", model, "--manifest", new, "--format", "jsonl") == 0
    found = map(json.loads, capsys.readouterr().out.splitlines())
    return {
        each["id"]: (
            each["text"], mean(word["confidence"] for word in each["words"]), seconds[each["id"]]
        )
        for each in found
    }  # fmt: skip


def test_the_confident_ones_are_kept_and_the_rest_is_counted(
    model: Path, new: Path, tmp_path: Path, capsys: Capture
) -> None:
    every = decoded(model, new, capsys)
    least = sorted(confidence for _, confidence, _ in every.values())[3] - 1e-6
    output = tmp_path / "pseudo.jsonl"
    options = "--model", model, "--manifest", new, "--output", output
    assert run("decode", *options, "--confident", least) == 0
    (told,) = capsys.readouterr().out.splitlines()
    rows = {row["id"]: row for row in map(json.loads, output.read_text().splitlines())}
    assert rows.keys() == {name for name, (_, sure, _) in every.items() if sure >= least}
    assert len(rows) == 3  # control: some are not
    for name, row in rows.items():
        text, confidence, seconds = every[name]
        assert (row["text"], row["speaker"]) == (text, f"s{name[1]}")
        assert row["confidence"] == pytest.approx(confidence, abs=1e-3)
        assert row["duration"] == pytest.approx(seconds, abs=1e-3)
    kept = sum(every[name][2] for name in rows)
    whole = sum(seconds for _, _, seconds in every.values())
    assert f"3 of 6 recordings, {kept:.0f} of {whole:.0f} s; 3 have a confidence below" in told
    assert ("WER of the kept" in told) == ("u2" in rows)
    # All of them, and what training reads is what decoding read.
    assert run("decode", *options, "--confident", 0) == 0
    assert "0 have a confidence below 0, 0 no words; WER of the kept" in capsys.readouterr().out
    before, after = ([*read_manifest(path, [])] for path in (new, output))
    for old, pseudo in zip(before, after, strict=True):
        assert Path(pseudo.audio).resolve() == Path(old.audio).resolve()
        assert (pseudo.start or 0.0) == (old.start or 0.0)
        assert pseudo.duration == pytest.approx(every[old.id][2], abs=1e-3)


def test_files_and_channels(model: Path, tmp_path: Path, capsys: Capture) -> None:
    path = write_wav(tmp_path / "a.wav", speech(2.0).repeat(2).reshape(-1, 2))
    output = tmp_path / "p.jsonl"
    options = "--model", model, "--output", output, "--confident", 0
    assert run("decode", *options, "--channel", 1, path) == 0
    (row,) = map(json.loads, output.read_text().splitlines())
    assert row["channel"] == 1
    assert Path(output.parent, row["audio"]).samefile(path)


def test_nothing_is_confident(model: Path, new: Path, tmp_path: Path, capsys: Capture) -> None:
    output = tmp_path / "p.jsonl"
    options = "--model", model, "--manifest", new, "--output", output
    assert run("decode", *options, "--confident", 1) == 2
    assert "p.jsonl not written: 0 of 6 recordings" in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--confident", "0.5"], "--confident P and --output FILE belong together"),
        (["--output", "x.jsonl"], "--confident P and --output FILE belong together"),
        (["--confident", "0.5", "--output", "x.jsonl", "--nbest", "2"], "does not take --nbest"),
        (["--confident", "0.5", "--output", "x.jsonl", "--format", "csv"], "not take --format"),
        (["--confident", "1.5", "--output", "x.jsonl"], "1.5"),
    ],
)
def test_options_that_do_not_fit(
    more: list[str], told: str, model: Path, new: Path, capsys: Capture
) -> None:
    assert run("decode", "--model", model, "--manifest", new, *more) == 2
    assert told in capsys.readouterr().err


def test_a_manifest_names_recordings_inside_shards(
    model: Path, new: Path, tmp_path: Path, capsys: Capture
) -> None:
    shards, output = tmp_path / "shards", tmp_path / "x.jsonl"
    assert run("data", "shard", new, "--output", shards) == 0
    options = "--manifest", shards, "--confident", 0, "--output", output
    assert run("decode", "--model", model, *options) == 0
    expected = list(read_recordings(str(shards), []))
    found = {each.id: each for each in read_manifest(output, [])}
    assert 0 < len(found) <= len(expected)
    for each in expected:
        assert np.array_equal(found.get(each.id, each).load(), each.load())
