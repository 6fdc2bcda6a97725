"""`asrkit plan`: the file that it writes trains, by hours and texts."""

import re
from pathlib import Path

import pytest

from asrkit.config.schema import load_config
from tests.conftest import write_manifest
from tests.running import run

Output = pytest.CaptureFixture[str]


def test_a_plan(corpus: Path, tmp_path: Path, capsys: Output) -> None:
    output = tmp_path / "mine.yaml"
    sets = corpus / "train.jsonl", corpus / "dev.jsonl"
    arguments = (*sets, "--output", output)
    assert run("plan", *arguments) == 0
    config = load_config(output)
    assert config.data.train == [str(sets[0])]
    assert config.training.output_dir == "exp/mine"
    shown = capsys.readouterr().out
    assert "begins with conf/conformer.yaml, for 0.00 h and 2 words" in shown
    seconds = sum(1.0 + 0.2 * (i % 4) for i in range(12))
    hours = seconds * sum(1 / factor for factor in (0.9, 1.0, 1.1)) / 3600
    epochs = round(56 / (seconds / 3600) ** 0.5 / 3)
    assert re.search(rf"{hours * epochs:.1f} h of audio in all epochs: about .* on one CPU", shown)
    assert f"asrkit train --config {output}" in shown


def test_mistakes(corpus: Path, tmp_path: Path, capsys: Output) -> None:
    train, output = corpus / "train.jsonl", tmp_path / "mine.yaml"
    lost = write_manifest(tmp_path / "x.jsonl", {"id": "a", "audio": "a.wav", "text": "no"})
    other = write_manifest(tmp_path / "y.jsonl", {"id": "a", "text": "no"})
    for dev, written, told in (
        (train, output, "dev must have other recordings than train"),
        (corpus / "dev.jsonl", train, "is read and cannot be written"),
        (tmp_path / "no.jsonl", output, "no.jsonl does not exist"),
        (lost, output, "has no readable recording with a text"),
        (other, output, "y.jsonl:1: 'audio': field required"),
    ):
        assert run("plan", train, dev, "--output", written) == 2
        assert told in capsys.readouterr().err
    assert not output.exists()
