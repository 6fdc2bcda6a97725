"""Law 5: resumed training equals uninterrupted training, bit for bit, also after SIGKILL."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from asrkit.model_file import load_model
from asrkit.train import main
from asrkit.training.trainer import Step, Trainer
from tests.conftest import PROJECT, write_config


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_killed_in_the_middle_of_an_epoch(
    corpus: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    """Dropout, SpecAugment, chunk sizes and the batches' order all go on as if nothing happened."""
    options = {"epochs": 3, "checkpoint_every_steps": 1}
    whole = write_config(tmp_path / "whole.yaml", corpus, tmp_path / "whole", **options)
    assert main(["--config", str(whole)]) == 0
    killed = write_config(tmp_path / "killed.yaml", corpus, tmp_path / "killed", **options)
    command = [sys.executable, "-m", "asrkit.train", "--config", str(killed)]
    process = subprocess.Popen(command, cwd=PROJECT, env=environment, stderr=subprocess.DEVNULL)
    checkpoints = tmp_path / "killed" / "checkpoints"
    deadline = time.monotonic() + 120
    while len([*checkpoints.glob("step-*.pt")]) < 2:  # an epoch has five steps or so
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    state = torch.load(max(checkpoints.glob("step-*.pt")), weights_only=True)
    assert state["progress"]["epoch"] == 0 or state["progress"]["batch"] > 0
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    assert main(["--config", str(killed), "--resume"]) == 0
    assert "resuming at epoch" in (tmp_path / "killed" / "train.log").read_text()
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "killed"))


def stop_after(steps: int, config: Path, monkeypatch: pytest.MonkeyPatch, *overrides: str) -> None:
    """Train, and press Ctrl-C in the middle of a step."""
    train_step, done = Trainer.train_step, 0

    def interrupted(self: Trainer, step: Step) -> None:
        nonlocal done
        done += 1
        if done == steps:
            os.kill(os.getpid(), signal.SIGINT)
        train_step(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_step", interrupted)
        assert main(["--config", str(config), *overrides]) == 130


TRANSDUCER = "model.head={kind: transducer, predictor_dim: 8, joint_dim: 8}"
NEMO = ["model.subsampling={kind: conv8, pad_stages: true}", "model.frontend=slaney"]


@pytest.mark.parametrize(
    "overrides", [[], [TRANSDUCER], [*NEMO, "augmentation.frequency_warp=0.1"]]
)
def test_stopped_by_ctrl_c(
    overrides: list[str], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = write_config(tmp_path / "whole.yaml", corpus, tmp_path / "whole")
    assert main(["--config", str(whole), *overrides]) == 0
    stopped = write_config(tmp_path / "stopped.yaml", corpus, tmp_path / "stopped")
    stop_after(2, stopped, monkeypatch, *overrides)
    shutil.copytree(tmp_path / "stopped", tmp_path / "kept")
    assert main(["--config", str(stopped), *overrides, "--resume"]) == 0
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "stopped"))
    if overrides:
        return
    for what in ("batch", "optimizers"):  # controls: one batch forgotten, or the optimisers' state
        shutil.rmtree(tmp_path / "stopped")
        shutil.copytree(tmp_path / "kept", tmp_path / "stopped")
        path = next((tmp_path / "stopped" / "checkpoints").glob("*.pt"))
        state = torch.load(path, weights_only=True)
        if what == "batch":
            state["progress"]["batch"] += 1
        else:
            for optimizer in state["optimizers"]:
                optimizer["state"] = {}
        torch.save(state, path)
        assert main(["--config", str(stopped), "--resume"]) == 0
        assert not same(weights(tmp_path / "whole"), weights(tmp_path / "stopped"))


def test_a_training_goes_on_alone(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not written over, and its time is that of all runs."""
    out = tmp_path / "out"
    command = ["--config", str(write_config(tmp_path / "config.yaml", corpus, out, epochs=1))]
    assert main(command) == 0
    path = max((out / "checkpoints").glob("*.pt"))
    state, written = torch.load(path, weights_only=True), (out / "config.yaml").read_text()
    assert 0.0 < state["wall_seconds"] < 600.0
    torch.save(state | {"wall_seconds": 3600.0}, path)
    assert main(command) == 2
    assert "already has a training; --resume continues it" in capsys.readouterr().err
    assert main([*command, f"training.output_dir={command[1]}"]) == 2
    assert "training.output_dir must name a folder, but " in capsys.readouterr().err
    assert (out / "config.yaml").read_text() == written
    assert main([*command, "--resume"]) == 0
    assert 3600 <= load_model(out / "model.safetensors").training["wall_seconds"] < 4200
