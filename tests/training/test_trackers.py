"""Trackers: each gets the settings and the curves of a training, offline."""

import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from asrkit.config import load_config
from asrkit.training.trackers import Tracker
from tests.conftest import write_config
from tests.running import run


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """The stand-in for both packages."""
    fake = MagicMock()
    for name in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, fake)
    monkeypatch.setattr("asrkit.extras.find_spec", lambda name: name)
    return fake


def logged(log: MagicMock) -> dict[str, float]:
    return {tag: value for call in log.call_args_list for tag, value in call.args[0].items()}


@pytest.mark.parametrize(
    ("kind", "log", "end"),
    [("wandb", "log", "finish"), ("mlflow", "log_metrics", "end_run")],
)
def test_what_a_tracker_gets(
    kind: str, log: str, end: str, fake: MagicMock, corpus: Path, tmp_path: Path
) -> None:
    config = load_config(write_config(tmp_path / "c.yaml", corpus, tmp_path / "mine"))
    tracker = Tracker(kind, config)
    for tag, value in {"loss": 2.5, "wer/full": 12.0, "wer/320+160 ms": 14.0}.items():
        tracker.add_scalar(tag, value, 7)
    tracker.close()
    calls = getattr(fake, log)
    assert [call.kwargs["step"] for call in calls.call_args_list] == [7, 7, 7]
    assert logged(calls) == {"loss": 2.5, "wer/full": 12.0, "wer/320 plus 160 ms": 14.0}
    getattr(fake, end).assert_called_once_with()
    if kind == "mlflow":
        fake.start_run.assert_called_once_with(run_name="mine")
        assert fake.log_params.call_args.args[0]["model.dim"] == "16"
    else:
        started = fake.init.call_args.kwargs
        assert (started["project"], started["name"]) == ("asrkit", "mine")
        assert started["config"]["model"]["dim"] == 16


def test_a_training(fake: MagicMock, corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "exp" / "mine"
    config = write_config(tmp_path / "c.yaml", corpus, output, trackers=["wandb"])
    assert run("train", "--config", config) == 0
    assert {"loss", "learning_rate", "wer/full", "cer/full"} <= logged(fake.log).keys()
    fake.init.assert_called_once()
    fake.finish.assert_called_once_with()
    last = (output / "train.log").read_text().splitlines()[-1]
    curves = f"curves: tensorboard --logdir {output.parent}"
    assert last.endswith(f"{curves}; errors: asrkit report {output}")
