"""`asrkit plan`: the file that it writes trains, and nothing of the corpus gets into its YAML."""

import json
from pathlib import Path

import pytest
import yaml

from asrkit.commands.plan import Speed, band_of, measured
from asrkit.config import load_config
from asrkit.data.checks.facts import Facts
from asrkit.data.checks.measure import read_entries
from asrkit.training.distributed import Ranks
from tests.conftest import write_config, write_manifest
from tests.running import run

Output = pytest.CaptureFixture[str]


def test_a_plan(corpus: Path, tmp_path: Path, capsys: Output) -> None:
    output = tmp_path / "mine.yaml"
    sets = corpus / "train.jsonl", corpus / "dev.jsonl"
    arguments = (*sets, "--output", output, "--seconds", 0)
    assert run("plan", *arguments, "--start-from", "none") == 0
    config = load_config(output)
    assert config.data.train == [str(sets[0])]
    assert config.training.output_dir == "exp/mine"
    assert config.augmentation.spec_probability == 0
    text = output.read_text(encoding="utf-8")
    assert "  spec_probability: 0 # too little audio to hide any" in text
    shown = capsys.readouterr().out
    assert "utterances" in shown
    assert "reached with fsdd" in shown
    assert f"asrkit train --config {output}" in shown
    assert run("plan", *arguments) == 0  # small-en-alnum knows yes and no
    assert load_config(output).training.start_from == "small-en-alnum"
    assert "was trained on are unknown" not in capsys.readouterr().out  # dev names no speaker
    rows = [json.loads(line) | {"speaker": "a"} for line in sets[1].read_text().splitlines()]
    write_manifest(sets[1], *rows)
    assert run("plan", *arguments) == 0
    assert (
        f"{sets[1]}: the speakers that small-en-alnum was trained on are unknown: "
        "'data/alnum/train.jsonl' names none here" in capsys.readouterr().out
    )


def test_the_speed_is_that_of_real_steps(corpus: Path, tmp_path: Path) -> None:
    config = load_config(write_config(tmp_path / "c.yaml", corpus, tmp_path / "exp"))
    speed = measured(config, Ranks("cpu"), 0.2)
    assert speed.steps >= 1
    seconds = sum(1.0 + 0.2 * (i % 4) for i in range(12))
    assert speed.seconds == pytest.approx(2 * seconds / speed.audio_a_second, rel=1e-3)
    assert not (tmp_path / "exp").exists()


def test_the_plan_is_shown_before_the_speed_is_measured(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    shown: list[str] = []

    def measure(*_: object) -> Speed:
        shown.append(capsys.readouterr().out)
        return Speed(1.0, 1, 1.0, "here")

    monkeypatch.setattr("asrkit.commands.plan.measured", measure)
    sets = corpus / "train.jsonl", corpus / "dev.jsonl"
    assert run("plan", *sets, "--output", tmp_path / "mine.yaml", "--seconds", 9) == 0
    assert "spec_probability=0" in shown[0]
    assert shown[0].endswith(
        "measuring 9 s of training, once the corpus is read (--seconds 0: do not measure)\n"
    )


def test_hostile_ids_stay_in_comments(corpus: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (corpus / "train.jsonl").read_text().splitlines()]
    rows[3]["id"] = "x\ntraining: {seed: 7}"
    write_manifest(corpus / "train.jsonl", *rows)
    output = tmp_path / "mine.yaml"
    sets = corpus / "train.jsonl", corpus / "dev.jsonl"
    assert run("plan", *sets, "--output", output, "--seconds", 0, "--start-from", "none") == 0
    assert yaml.safe_load(output.read_text(encoding="utf-8"))["training"]["seed"] == 0
    assert "seed: 7" in output.read_text(encoding="utf-8")


def test_mistakes(corpus: Path, tmp_path: Path, capsys: Output) -> None:
    train, output = corpus / "train.jsonl", tmp_path / "mine.yaml"
    assert run("plan", train, train, "--output", output) == 2
    assert "dev must have other recordings than train" in capsys.readouterr().err
    assert run("plan", train, corpus / "dev.jsonl", "--output", train) == 2
    assert "is read and cannot be written" in capsys.readouterr().err
    assert run("plan", train, tmp_path / "no.jsonl", "--output", output) == 2
    assert "no.jsonl does not exist" in capsys.readouterr().err
    silent = write_manifest(tmp_path / "x.jsonl", {"id": "a", "audio": "a.wav", "text": "no"})
    assert run("plan", train, silent, "--output", output) == 2
    assert "has no readable recording with a text" in capsys.readouterr().err
    write_manifest(tmp_path / "x.jsonl", {"id": "a", "text": "no"})
    assert run("plan", train, silent, "--output", output) == 2
    assert "x.jsonl:1: 'audio': field required" in capsys.readouterr().err
    assert not output.exists()


def test_the_band(corpus: Path) -> None:
    entry = read_entries(str(corpus / "train.jsonl"), [])[0]
    one = entry.utterance.model_copy(update={"sample_rate": 8000})
    assert band_of([Facts("m", 1, one)], []) == 4000
    wide = one.model_copy(update={"sample_rate": 48000})
    assert band_of([Facts("m", 1, one), Facts("m", 2, wide)], []) == 0
