"""Trackers: each gets the settings and the curves of a training, offline."""

import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from asrkit.config.schema import load_config
from asrkit.training.trackers import Tracker
from tests.conftest import write_config
from tests.running import run


@pytest.mark.parametrize(("kind", "log"), [("wandb", "log"), ("mlflow", "log_metrics")])
def test_a_training(
    kind: str, log: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = MagicMock()
    monkeypatch.setitem(sys.modules, kind, fake)
    monkeypatch.setattr("asrkit.extras.find_spec", lambda name: name)
    path = write_config(tmp_path / "c.yaml", corpus, tmp_path / "mine", epochs=1, trackers=[kind])
    assert run("train", "--config", path) == 0
    calls = getattr(fake, log).call_args_list
    logged = {tag: call.kwargs["step"] for call in calls for tag in call.args[0]}
    assert {"loss", "learning_rate", "wer/full", "cer/full"} <= logged.keys()
    assert logged["loss"] > 0
    assert fake.end_run.called or fake.finish.called
    if kind == "mlflow":
        fake.start_run.assert_called_once_with(run_name="mine")
        assert fake.log_params.call_args.args[0]["model.dim"] == "16"
        Tracker(kind, load_config(path)).add_scalar("wer/320+160 ms", 14.0, 7)
        fake.log_metrics.assert_called_with({"wer/320 plus 160 ms": 14.0}, step=7)
    else:
        started = fake.init.call_args.kwargs
        assert (started["project"], started["name"]) == ("asrkit", "mine")
        assert started["config"]["model"]["dim"] == 16
