"""Epochs by the hours of audio: enough steps, said, recorded, and resumed bit for bit."""

import re
from pathlib import Path

import pytest

from asrkit.config.schema import load_config
from asrkit.model_file import load_model
from asrkit.train import main
from asrkit.training import schedule
from asrkit.training.schedule import resolved
from tests.conftest import PROJECT, write_config
from tests.laws.test_resume import same, stop_after, weights
from tests.training.test_shards import train

DEFAULT = PROJECT / "conf" / "conformer.yaml"
SPEEDS = [0.9, 1.0, 1.1]
LINE = (
    r"(?P<epochs>\d+) epochs of (?P<batches>\d+) batches, \d+\.\d % padding: "
    r"about (?P<steps>\d+) steps; "
    r"epochs averaged: (?P<averaged>\d+)\n"
)
AUTO = {"epochs": "auto", "average": "auto"}


def epoch(hours: float) -> float:
    """Hours of an epoch of recordings at three speeds."""
    return hours * sum(1.0 / factor for factor in SPEEDS)


@pytest.mark.parametrize(
    ("hours", "epochs", "averaged"),
    [(1 / 6, 46, 9), (1 / 3, 32, 6), (0.62, 24, 5), (1, 19, 4), (4.3, 9, 2), (5.5, 8, 2),
     (20, 8, 2)],
)  # fmt: skip
def test_the_default_has_epochs_by_the_hours_of_recordings(
    hours: float, epochs: int, averaged: int
) -> None:
    config = resolved(load_config(DEFAULT), epoch(hours) * 3600)
    assert config.augmentation.speed_factors == SPEEDS
    assert (config.training.epochs, config.training.average) == (epochs, averaged)


def test_as_many_passes_at_one_speed_as_at_three() -> None:
    for hours, speeds, epochs in (
        (1.0, [1.0], 56), (epoch(1.0), SPEEDS, round(56 / 3)), (1e6, [1.0], 24),
        (1e6, [1 + i / 1000 for i in range(60)], 1),
    ):  # fmt: skip
        config = load_config(DEFAULT, [f"augmentation.speed_factors={speeds}"])
        assert resolved(config, hours * 3600).training.epochs == epochs


def test_numbers_stay() -> None:
    config = load_config(DEFAULT, ["training.epochs=3", "training.average=7"])
    assert resolved(config, 1.0) == config
    config = load_config(DEFAULT, ["training.epochs=3"])
    assert resolved(config, 1.0).training.average == 1


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five epochs for the corpus of the tests, of which two are averaged."""
    monkeypatch.setattr(schedule, "PASSES", 0.31)
    monkeypatch.setattr(schedule, "FEWEST_PASSES", 1.0)
    monkeypatch.setattr(schedule, "AVERAGED", 0.4)


def test_auto_is_the_number_that_it_says(
    few: None, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rate, masks and average follow it, and a stopped training goes on bit for bit."""
    given = {"auto": AUTO, "stopped": AUTO, "given": {"epochs": 5, "average": 2}}
    for name in ("auto", "given"):
        assert train(corpus, tmp_path / name, **given[name]) == 0
    stopped = write_config(tmp_path / "stopped.yaml", corpus, tmp_path / "stopped", **AUTO)
    stop_after(8, stopped, monkeypatch)
    assert main(["--config", str(stopped), "--resume"]) == 0
    auto = weights(tmp_path / "auto")
    for name in given:
        assert same(auto, weights(tmp_path / name))
        model = load_model(tmp_path / name)
        assert model.training["epochs"] == model.config.training.epochs == 5
        assert model.training["averaged_epochs"] == [4, 5]
        said = re.search(LINE, (tmp_path / name / "train.log").read_text())
        assert said
        assert said["epochs"] == "5"
        assert said["averaged"] == "2"
        assert int(said["steps"]) == 5 * int(said["batches"])
        assert abs(int(said["steps"]) - model.training["steps"]) <= 5  # a batch an epoch
    # Control: another number of epochs is another training.
    assert train(corpus, tmp_path / "o", epochs=4, average=2) == 0
    assert not same(auto, weights(tmp_path / "o"))
