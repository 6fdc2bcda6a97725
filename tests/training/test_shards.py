"""Training from shards: the same weights as from files, and no shard is lost without a word."""

import json
import logging
from pathlib import Path

import pytest

from asrkit.data import recording
from asrkit.model_file import load_model
from asrkit.train import main
from asrkit.training import dataset as training_corpus
from asrkit.training.trainer import Trainer
from tests.conftest import read_rows, write_config, write_manifest
from tests.laws.test_resume import same, stop_after, weights
from tests.running import run

SPEEDS = "augmentation.speed_factors=[0.9,1.0]"


def train(corpus: Path, folder: Path, *overrides: str, **training: object) -> int:
    config = write_config(folder.with_suffix(".yaml"), corpus, folder, **training)
    return main(["--config", str(config), *overrides])


def log_of(folder: Path) -> str:
    return (folder / "train.log").read_text()


def test_shards_train_what_files_do(corpus: Path, shards: Path, tmp_path: Path) -> None:
    """Bit for bit, at several speeds, with noise."""
    changes = (SPEEDS, f"augmentation.noise={corpus / 'dev.jsonl'}")
    assert train(corpus, tmp_path / "files", *changes, epochs=1) == 0
    assert train(corpus, tmp_path / "shards", *changes, f"data.train={shards}", epochs=1) == 0
    assert same(weights(tmp_path / "files"), weights(tmp_path / "shards"))
    # Control: one utterance fewer is another training.
    lines = (corpus / "train.jsonl").read_text().splitlines()
    (corpus / "fewer.jsonl").write_text("\n".join(lines[:-1]))
    fewer = f"data.train={corpus / 'fewer.jsonl'}"
    assert train(corpus, tmp_path / "fewer", *changes, fewer, epochs=1) == 0
    assert not same(weights(tmp_path / "files"), weights(tmp_path / "fewer"))


def test_resuming_reads_what_is_left(
    corpus: Path, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal to uninterrupted training, and none of the earlier utterances' audio is read."""
    read: list[tuple[str, int]] = []
    part_of_bytes = recording.part_of_bytes

    def recorded(path: str, first_byte: int, num_bytes: int | None) -> object:
        if num_bytes is not None:
            read.append((path, first_byte))
        return part_of_bytes(path, first_byte, num_bytes)

    monkeypatch.setattr(recording, "part_of_bytes", recorded)
    of_shards = f"data.train={shards}"
    assert train(corpus, tmp_path / "whole", of_shards, epochs=1) == 0
    of_epoch = read[-12:]  # before them, the features' statistics
    assert len(set(of_epoch)) == 12
    stopped = write_config(tmp_path / "stopped.yaml", corpus, tmp_path / "stopped", epochs=1)
    stop_after(3, stopped, monkeypatch, of_shards)
    read.clear()
    assert main(["--config", str(stopped), of_shards, "--resume"]) == 0
    assert read == of_epoch[-len(read) :]
    assert 0 < len(read) < 12
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "stopped"))


def test_a_shard_that_goes_away_ends_training(
    corpus: Path, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Or, if so much may be lost, is named and counted."""
    train_epoch, shard = Trainer.train_epoch, shards / "000001.tar"

    def without_a_shard(self: Trainer) -> None:
        if self.progress.epoch == 1:
            shard.rename(tmp_path / "away")
        train_epoch(self)

    monkeypatch.setattr(Trainer, "train_epoch", without_a_shard)
    assert train(corpus, tmp_path / "out", f"data.train={shards}") == 2
    told = capsys.readouterr().err
    assert "of an epoch's 12 utterances could not be read" in told
    assert "000001.tar cannot be read: No such file" in told
    (tmp_path / "away").rename(shard)
    half = (f"data.train={shards}", "data.max_bad_share=0.5")
    assert train(corpus, tmp_path / "half", *half) == 0
    log = log_of(tmp_path / "half")
    assert log.count("000001.tar cannot be read: No such file") == 5
    assert log.count("5 of 12 utterances were left out; 5 of them could not be read") == 1


def test_what_is_checked_where(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of many texts: durations and empty texts before training, the others in their batch."""
    lines = read_rows(corpus / "train.jsonl")
    for number, text in ((1, ""), (2, "yesyesyes" * 9), (5, "nonsense")):
        lines[number]["text"] = text
    path = write_manifest(corpus / "m.jsonl", *lines)
    assert run("data", "shard", path, "--output", corpus / "m", "--shard-size", 5) == 0
    monkeypatch.setattr(training_corpus, "MAX_TEXTS", 3)  # of utterances 0, 5 and 11
    with caplog.at_level(logging.INFO):
        limits = ("data.max_seconds=1.5", f"data.train={corpus / 'm'}")
        assert train(corpus, tmp_path / "out", *limits, epochs=1) == 0
    left_out = (tmp_path / "out" / "left_out.jsonl").read_text().splitlines()
    reasons = {each["id"]: each["reason"] for each in map(json.loads, left_out)}
    assert sorted(reasons) == ["train1", "train11", "train3", "train7"]
    assert reasons["train1"] == "empty text"
    assert reasons["train11"].startswith("1.60 s long")
    log = log_of(tmp_path / "out")
    assert "left out train2: too short" in log
    assert "1 of 8 utterances were left out; 0 of them could not be read" in log
    told = "labels: 3 texts of each set are read"
    assert told in caplog.text
    caplog.clear()
    file = load_model(tmp_path / "out" / "model.safetensors")
    (tmp_path / "labels").write_bytes(file.tokenizer.to_bytes())
    with caplog.at_level(logging.INFO):
        training_corpus.load_corpus(file.config, tmp_path / "labels")
    assert told not in caplog.text
