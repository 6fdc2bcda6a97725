"""Checkpoints and weights of epochs: they rotate, and what is damaged or foreign is never used."""

import errno
import io
import logging
import os
import random
import shutil
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from asrkit.training import checkpoints
from asrkit.training.checkpoints import (
    Checkpoint,
    Checkpoints,
    EpochWeights,
    TrainingCheckpointError,
    check_fit,
    read_checkpoint,
)
from asrkit.training.optimizer import build_optimizers
from tests.conftest import tiny_model
from tests.laws.test_resume import same


def network() -> nn.Module:
    return tiny_model(vocab_size=3, num_layers=1, dim=8, num_heads=1, ffn_dim=8).float()


def stepped(model: nn.Module) -> list[torch.optim.Optimizer]:
    """Its optimisers, with something to remember."""
    optimizers = build_optimizers(model, "muon", 0.01, {})
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    for optimizer in optimizers:
        optimizer.step()
    return optimizers


def state(step: int = 1, **changes: Any) -> dict[str, Any]:
    model = network()
    whole = {
        "identity": {"the tokenizer": "0123"},
        "weights": model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in stepped(model)],
        "progress": {"epoch": 0, "batch": step, "step": step, "seconds": 2.5},
        "history": {0: {"full": 50.0}},
        "wall_seconds": 1.0,
        "config": {},
    }
    return whole | changes


def step_of(found: Checkpoint) -> int:
    return found.progress.step


def test_checkpoints_rotate(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.newest(step_of) is None
    for step in (1, 2, 30):
        checkpoints.save(step, state(step))
    (tmp_path / "step-best.pt").touch()  # no number, none of ours
    assert list(checkpoints.paths()) == [2, 30]
    assert checkpoints.newest(step_of) == 30
    checkpoints.save(10, state(10))  # resumed from one before 30, which could not be used
    assert list(checkpoints.paths()) == [2, 10]


class Disk(io.BytesIO):
    """A file on a disk that becomes full."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def open(self, mode: str) -> "Disk":
        return self

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self.size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an OSError, which commands print as one line; control: torch raises a RuntimeError."""
    written = {"step": 1, "weights": {"w": torch.zeros(1000)}}
    monkeypatch.setattr(checkpoints, "replacing", lambda path: nullcontext(Disk(2000)))
    with pytest.raises(OSError, match="No space left on device"):
        Checkpoints(tmp_path).save(1, written)
    with pytest.raises(RuntimeError):
        torch.save(written, Disk(2000))


def test_a_flipped_bit_anywhere_is_noticed_or_harmless(tmp_path: Path) -> None:
    """In the tensors, the pickle, the file's directory and what lies between; every 5th byte."""
    path = tmp_path / "step-1.pt"
    weights = {"weight": torch.randn(20, 10), "bias": torch.randn(10)}
    torch.save(state(weights=weights, optimizers=[]), path)
    good, draw = path.read_bytes(), random.Random(0)
    expected, noticed, harmless = read_checkpoint(path), 0, 0
    for place in range(draw.randrange(5), len(good), 5):
        damaged = bytearray(good)
        damaged[place] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        try:
            found = read_checkpoint(path)
        except TrainingCheckpointError:
            noticed += 1
            continue
        assert same(found.weights, expected.weights), place
        dumps = (each.model_dump(exclude={"weights"}) for each in (found, expected))
        assert next(dumps) == next(dumps), place
        harmless += 1  # padding, dates
    assert noticed > harmless > 0


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as records:
        records.writestr("zeros", bytes(10**6))


def without_progress(path: Path) -> None:
    saved = state()
    del saved["progress"]
    torch.save(saved, path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "damaged, or not a checkpoint: BadZipFile(": lambda path: path.write_bytes(b""),
    "damaged, or not a checkpoint: BadZipFile": lambda path: path.write_bytes(b"nothing\n" * 99),
    "damaged: wrong checksum of its entry '": flipped,
    "damaged, or not a checkpoint: RuntimeError": archive,
    "damaged, or not a checkpoint: UnpicklingError": lambda path: torch.save({"w": Path()}, path),
    "not a training checkpoint: Input should be a valid dict": lambda path: torch.save([1], path),
    "not a training checkpoint: 'progress': Field required": without_progress,
    "damaged, or not a checkpoint: IsADirectoryError": folder,
    "damaged, or not a checkpoint: ": lambda path: path.write_bytes(path.read_bytes()[:-5000]),
}


@pytest.mark.parametrize("reason", DAMAGE)
def test_one_that_cannot_be_read_is_named_and_the_one_before_is_taken(
    reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        checkpoints.save(step, state(step))
    DAMAGE[reason](tmp_path / "step-00000002.pt")
    with caplog.at_level(logging.WARNING):
        assert checkpoints.newest(step_of) == 1
    (line,) = caplog.messages
    assert line.startswith(f"cannot resume from {tmp_path}/step-00000002.pt: {reason}")
    assert len(line) < len(str(tmp_path)) + 250
    DAMAGE[reason](tmp_path / "step-00000001.pt")
    with pytest.raises(
        TrainingCheckpointError,
        match=r"none of 2 checkpoints can be used; the oldest.*step-00000001.pt: ",
    ):
        checkpoints.newest(step_of)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"weights": {}}, "is missing, expected torch.float32"),
        ({"weights": network().double().state_dict()}, "is torch.float64"),
        (
            {"weights": network().state_dict() | {"x\n": torch.ones(2)}},
            r"'x\n' is torch.float32 (2",
        ),
        ({"optimizers": []}, "it has 0 optimisers, expected 2"),
    ],
)
def test_one_of_another_network_does_not_fit(change: dict[str, Any], told: str) -> None:
    model = network()
    optimizers = stepped(model)
    check_fit(Checkpoint.model_validate(state()), model, optimizers)  # control
    with pytest.raises(TrainingCheckpointError) as caught:
        check_fit(Checkpoint.model_validate(state(**change)), model, optimizers)
    assert f"{caught.value}".startswith("does not fit this model and optimiser: ")
    assert told in str(caught.value)


def test_average(tmp_path: Path) -> None:
    epochs, model = EpochWeights(tmp_path, 2), nn.Linear(1, 1)
    for epoch in (0, 1, 2, 4, 3):  # 3 is trained again, from an older checkpoint
        epochs.save(epoch, all_of(float(epoch)))
    (tmp_path / "epoch-best.safetensors").touch()
    assert list(epochs.paths()) == [2, 3]
    assert epochs.paths()[3].name == "epoch-0004.safetensors"  # the log's epoch 4
    average, used = epochs.average(model)
    assert used == [2, 3]
    assert average["weight"].item() == 2.5


def all_of(value: float) -> dict[str, torch.Tensor]:
    return {"weight": torch.full((1, 1), value), "bias": torch.full((1,), value)}


@pytest.mark.parametrize("place", [20, -1])  # in the header, in a weight
def test_a_damaged_epoch_is_not_averaged(
    place: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    epochs, model = EpochWeights(tmp_path, 3), nn.Linear(1, 1)
    for epoch in range(3):
        epochs.save(epoch, all_of(float(epoch)))
    content = bytearray(epochs.paths()[1].read_bytes())
    content[place] ^= 1
    epochs.paths()[1].write_bytes(content)
    with caplog.at_level(logging.WARNING):
        average, used = epochs.average(model)
    assert used == [0, 2]
    assert average["weight"].item() == 1.0
    assert f"epoch 2 is not averaged: {epochs.paths()[1]} is damaged" in caplog.text
    for epoch in (0, 2):
        shutil.copy(epochs.paths()[1], epochs.paths()[epoch])
    with pytest.raises(TrainingCheckpointError, match="no usable epoch-"):
        epochs.average(model)
