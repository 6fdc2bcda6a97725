"""`asrkit data check`: what it measures, prints and writes; one line for a mistake."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asrkit.audio import AudioError
from asrkit.data.checks import Facts
from asrkit.data.checks.measure import inspect, measure
from asrkit.data.manifest import read_manifest
from asrkit.data.recording import Recording
from asrkit.data.recordings import load
from tests.conftest import RECORDINGS, read_rows, speech, write_config, write_manifest, write_wav
from tests.data.checks.test_check import found
from tests.running import run


def check(*arguments: object) -> int:
    return run("data check", *arguments)


@pytest.fixture
def sick(corpus: Path) -> Path:
    """One file missing, one silent, one id twice, one line that is none; 10 are good."""
    lines = read_rows(corpus / "train.jsonl")
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


def inspected(path: Path, **keys: Any) -> Facts:
    return inspect(Facts("m", 1, Recording(id="u", audio=str(path), text="no", **keys)))


def test_signal(tmp_path: Path) -> None:
    time = np.arange(16000) / 16000
    sine = 0.5 * np.sin(2 * np.pi * 100 * time)
    signal = inspected(write_wav(tmp_path / "a.wav", sine + 0.1)).signal
    assert signal is not None
    assert signal[:3] == pytest.approx((1.0, 0.5 / 2**0.5, 0.0), abs=1e-4)
    loud = inspected(write_wav(tmp_path / "b.wav", np.clip(4 * sine, -1, 1))).signal
    assert loud is not None
    assert 0.6 < loud.clipped < 0.7  # |2 sin| > 1 two thirds of the time


def test_samples_that_training_refuses(tmp_path: Path) -> None:
    broken = speech(1.0)
    broken[3] = 100  # 40 dB above full scale are allowed
    broken[7:10] = np.nan, np.inf, -101
    facts = inspected(write_wav(tmp_path / "c.wav", broken, subtype="FLOAT"))
    assert "sample 7 is nan; divide values in the range of int16" in str(facts.problem)
    assert found([facts], "unreadable")
    with pytest.raises(AudioError, match="sample 7 is nan"):
        load(facts.utterance.measured())


def test_signal_does_not_depend_on_blocks_or_the_file_format(tmp_path: Path) -> None:
    samples = speech(2.0)[:, None].repeat(2, axis=1)
    whole = measure([samples], 16000)
    pieces = measure([samples[:999], samples[999:1000], samples[1000:]], 16000)
    assert whole is not None
    assert pieces is not None
    assert whole.digest == pieces.digest
    assert whole[:3] == pytest.approx(pieces[:3])
    assert measure([], 16000) is None
    wav, flac = (
        inspected(write_wav(tmp_path / name, (speech(1.0) * 32767).astype(np.int16))).signal
        for name in ("x.wav", "x.flac")
    )
    assert wav == flac


def test_parts_of_files(tmp_path: Path) -> None:
    path = write_wav(tmp_path / "x.wav", speech(2.0))
    for keys, seconds in (
        ({}, 2.0), ({"start": 0.5}, 1.5), ({"start": 0.5, "duration": 0.25}, 0.25),
        ({"start": 1.5, "duration": 3e5}, 0.5), ({"start": 3e5}, 0.0),
    ):  # fmt: skip
        facts = inspected(path, **keys)
        assert facts.problem is None
        assert facts.seconds == seconds
    assert found([facts], "outside")
    assert inspected(path, sample_rate=16000).problem is None
    wrong = inspected(path, sample_rate=8000).problem or ""
    assert "the manifest has 8000 Hz, the file has 16000 Hz: remove sample_rate" in wrong


def test_damaged_audio(tmp_path: Path) -> None:
    write_wav(tmp_path / "x.mp3", speech(4.0))
    (tmp_path / "cut.mp3").write_bytes((tmp_path / "x.mp3").read_bytes()[:4000])
    write_wav(tmp_path / "x.flac", speech(4.0))
    damaged = bytearray((tmp_path / "x.flac").read_bytes())
    damaged[len(damaged) // 2 :] = bytes(len(damaged) // 2)
    (tmp_path / "damaged.flac").write_bytes(damaged)
    assert found([inspected(tmp_path / "missing.wav")], "unreadable")
    assert found([inspected(tmp_path / "cut.mp3")], "cut-off")
    bad = [inspected(tmp_path / "damaged.flac")]
    assert found(bad, "cut-off") or found(bad, "unreadable")
