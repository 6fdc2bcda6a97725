"""`asrkit data check`: what it prints and writes, its exit status, and one line for a mistake."""

import json
from pathlib import Path

import numpy as np
import pytest

from asrkit.data.manifest import read_manifest
from tests.conftest import RECORDINGS, speech, write_config, write_manifest, write_wav
from tests.running import run


def check(*arguments: object) -> int:
    return run("data check", *arguments)


@pytest.fixture
def sick(corpus: Path) -> Path:
    """One file missing, one silent, one id twice, one line that is none; 10 are good."""
    lines = [json.loads(line) for line in (corpus / "train.jsonl").read_text().splitlines()]
    write_wav(corpus / "audio" / "train1.flac", np.zeros(16000))
    (corpus / "audio" / "train2.flac").unlink()
    lines[3]["note"] = "é"
    again = lines[4] | {"audio": lines[5]["audio"]}
    return write_manifest(corpus / "train.jsonl", *lines, again, {"id": "x", "text": 3})


def test_a_good_corpus(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Twelve recordings that differ; those of dev are among them."""
    assert check(corpus / "train.jsonl") == 0
    shown = capsys.readouterr().out
    assert "0 errors, 0 warnings" in shown
    assert f"{corpus}/train.jsonl: 12 utterances, 0.3 min, 0 speakers, 1.00 to 1.60 s" in shown
    assert "--config to judge by yours" in shown
    assert check(corpus / "train.jsonl", corpus / "dev.jsonl") == 0
    shown = capsys.readouterr().out
    assert "dev0: as train0 in" in shown
    assert "0 errors, 3 warnings" in shown


def test_a_sick_corpus(sick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(sick) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[:4]] == [
        ["error", "1", "lines"], ["error", "1", "audio"], ["error", "1", "silence"],
        ["error", "1", "ids"],
    ]  # fmt: skip
    assert "train1: all samples are equal" in lines[2]
    assert check(sick, "--format", "list") == 1
    shown = capsys.readouterr().out
    assert f"{sick}:13: error: id: train4: the id of line 5 too" in shown
    assert f"{sick}:14: error: line: 'audio': field required" in shown
    assert check(sick, "--no-audio") == 1
    shown = capsys.readouterr().out
    assert "all samples" not in shown
    assert "does not exist" in shown


def test_write(sick: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From another folder, also through a link; the result has nothing wrong with it."""
    before = sick.read_bytes()
    (tmp_path / "deep" / "real").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "real")
    for output in (tmp_path / "new" / "clean.jsonl", tmp_path / "link" / "clean.jsonl"):
        assert check(sick, "--write", output) == 1
        assert f"{output}: 10 of 14 utterances" in capsys.readouterr().err
        kept = list(read_manifest(output))
        assert [u.id for u in kept] == [f"train{i}" for i in (0, *range(3, 12))]
        assert all(Path(u.audio).is_file() for u in kept)
        assert "é" in output.read_text(encoding="utf-8")
        assert check(output) == 0
    assert sick.read_bytes() == before
    assert check(sick, "--write", sick) == 1  # in place
    assert check(sick) == 0


def test_config(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path / "c.yaml", corpus, tmp_path)
    audio = str(write_wav(tmp_path / "new.wav", speech(1.0, seed=99)))
    dev = write_manifest(tmp_path / "dev.jsonl", {"id": "d", "audio": audio, "text": "nö"})
    assert check(corpus / "train.jsonl", dev, "--config", config) == 1
    assert "not in the vocabulary: 'ö'" in capsys.readouterr().out
    assert check(dev, "--config", config) == 0  # its own training set


def test_shards(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("data", "shard", corpus / "dev.jsonl", "--output", tmp_path / "shards") == 0
    assert check(tmp_path / "shards", corpus / "train.jsonl") == 0
    shown = capsys.readouterr().out
    assert "shards: 3 utterances, " in shown
    assert "train0: as dev0 in" in shown  # by the samples
    assert check(tmp_path / "shards", "--write", tmp_path / "clean.jsonl") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.jsonl"], "none.jsonl does not exist"),
        (["empty.jsonl"], "empty.jsonl is empty"),
        (["folder"], "is not a folder of shards"),
        (["damaged.jsonl.gz"], "damaged.jsonl.gz"),
        (["m.jsonl", "m.jsonl"], "named twice"),
        (["m.jsonl", "./m.jsonl"], "named twice: dev must have other recordings than train"),
        (["m.jsonl", "n.jsonl", "--write", "c.jsonl"], "--write cleans a single manifest"),
        (["m.jsonl", "--config", "none.yaml"], "no configuration file none.yaml"),
    ],
)
def test_mistakes(
    arguments: list[str], message: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.jsonl").write_text("\n\n")
    (tmp_path / "damaged.jsonl.gz").write_bytes(b"not gzip")
    write_manifest(tmp_path / "m.jsonl", {"id": "a", "audio": "x.wav", "text": "no"})
    assert check(*arguments) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "c.jsonl").exists()


def test_real_recordings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of an4 are sound, and their speakers do not overlap; half of them are dev."""
    monkeypatch.chdir(RECORDINGS / "an4")
    assert check("train.jsonl", "dev.jsonl") == 0
    shown = capsys.readouterr().out
    assert "0 errors, 0 warnings" in shown
