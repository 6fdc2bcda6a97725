"""Trackers: each gets the settings and the curves of a training, offline."""

import sys
from pathlib import Path
from typing import Any

import pytest

from asrkit.config import load_config
from asrkit.training.trackers import Tracker
from tests.conftest import write_config
from tests.running import run


class Fake:
    """A stand-in for either of the packages, which records what it gets."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *values, **named: self.calls.append((name, values, named))

    def named(self, name: str) -> list[tuple[Any, Any]]:
        return [(values, named) for called, values, named in self.calls if called == name]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """The stand-in for both packages."""
    fake = Fake()
    for name in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, fake)
    monkeypatch.setattr("asrkit.extras.find_spec", lambda name: name)
    return fake


@pytest.mark.parametrize(
    ("kind", "log", "end"),
    [("wandb", "log", "finish"), ("mlflow", "log_metrics", "end_run")],
)
def test_what_a_tracker_gets(
    kind: str, log: str, end: str, fake: Fake, corpus: Path, tmp_path: Path
) -> None:
    config = load_config(write_config(tmp_path / "c.yaml", corpus, tmp_path / "mine"))
    tracker = Tracker(kind, config)
    for tag, value in {"loss": 2.5, "wer/full": 12.0, "wer/320+160 ms": 14.0}.items():
        tracker.add_scalar(tag, value, 7)
    tracker.close()
    logged = fake.named(log)
    assert [named["step"] for _, named in logged] == [7, 7, 7]
    assert {key: value for (found,), _ in logged for key, value in found.items()} == {
        "loss": 2.5, "wer/full": 12.0, "wer/320 plus 160 ms": 14.0
    }  # fmt: skip
    assert len(fake.named(end)) == 1
    if kind == "mlflow":
        assert fake.named("start_run") == [((), {"run_name": "mine"})]
        assert fake.named("log_params")[0][0][0]["model.dim"] == "16"
    else:
        started = fake.named("init")[0][1]
        assert (started["project"], started["name"]) == ("asrkit", "mine")
        assert started["config"]["model"]["dim"] == 16


def test_a_training(fake: Fake, corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "exp" / "mine"
    config = write_config(tmp_path / "c.yaml", corpus, output, trackers=["wandb"])
    assert run("train", "--config", config) == 0
    tags = {tag for (found,), _ in fake.named("log") for tag in found}
    assert {"loss", "learning_rate", "wer/full", "cer/full"} <= tags
    assert len(fake.named("init")) == len(fake.named("finish")) == 1
    last = (output / "train.log").read_text().splitlines()[-1]
    curves = f"curves: tensorboard --logdir {output.parent}"
    assert last.endswith(f"{curves}; errors: asrkit report {output}")
