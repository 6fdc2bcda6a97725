"""Which device a training takes, and that it says so."""

from pathlib import Path

import pytest
import torch

from asrkit.backends.pytorch import known_device
from asrkit.errors import UserError
from asrkit.train import main
from asrkit.training.distributed import chosen_device
from tests.conftest import write_config


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch sees them; nothing is computed there."""
    for module in (torch.cuda, torch.accelerator):
        monkeypatch.setattr(module, "is_available", lambda: True)
        monkeypatch.setattr(module, "device_count", lambda: 2)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a card")


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("asked", "local", "processes", "device", "told"),
    [
        ("auto", 0, 2, "cuda:0", "cuda:0, a card: training.device is auto"),
        ("auto", 1, 2, "cuda:1", "cuda:1, a card: training.device is auto"),
        ("cuda", 1, 2, "cuda:1", "cuda:1, a card: training.device is cuda"),
        ("cuda:1", 0, 1, "cuda:1", "cuda:1, a card: training.device is cuda:1"),
        ("cpu", 0, 1, "cpu", "cpu: training.device is cpu"),
        ("auto", 2, 3, "", "auto, 2 GPUs for 3 processes of this machine: start one process"),
        ("cuda:1", 1, 2, "", "cuda:1, 1 GPUs for 2 processes of this machine: start one"),
        ("cuda:7", 0, 1, "", "training.device: device must be one of cpu, cuda:0, cud"),
    ],
)
def test_with_gpus(
    asked: str, local: int, processes: int, device: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a device the training is refused."""
    monkeypatch.setenv("LOCAL_RANK", str(local))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    if device:
        assert chosen_device(asked) == (torch.device(device), told)
    else:
        with pytest.raises(UserError, match=told):
            chosen_device(asked)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("asked", "rounded"), [("cuda:0", False), ("cpu", True)])
def test_convolutions_are_exact_on_a_gpu(asked: str, rounded: bool) -> None:
    """As torch has them, cuDNN rounds some to 10 bits: chunks differ from the whole by 8e-3."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=True):
        known_device(asked)
        assert torch.backends.cudnn.allow_tf32 == rounded


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = ["--config", str(write_config(tmp_path / "c.yaml", corpus, tmp_path / "out"))]
    assert main([*config, "training.device=cuda"]) == 2
    message = capsys.readouterr().err
    assert "training.device is cuda, but torch" in message
    assert "finds no GPU: install" in message
    assert "or set training.device=cpu" in message
    assert not (tmp_path / "out").exists()
    assert main([*config, "training.epochs=1"]) == 0
    first, *_ = (tmp_path / "out" / "train.log").read_text().splitlines()
    assert f"training on cpu: training.device is auto, and torch {torch.__version__} finds" in first
    # It may change where the training goes on.
    assert main([*config, "training.epochs=1", "training.device=cpu", "--resume"]) == 0
