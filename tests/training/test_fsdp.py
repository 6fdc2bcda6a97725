"""Models spread over ranks (training.parallel=fsdp): the same training, with a share of it."""

import re
from pathlib import Path

import pytest

from asrkit.train import main
from tests.conftest import write_config
from tests.training.ranks import train_with
from tests.training.test_distributed import STOPPED, apart, scores_of, settings

FSDP, DDP = "training.parallel=fsdp", "training.parallel=ddp"

# Ranks write down how many of the model's parameters they hold.
COUNTED = """
from asrkit.training.fsdp import own
from asrkit.training.trainer import Trainer

def counted(self, run=Trainer.run):
    print("holds", sum(own(p).numel() for p in self.model.parameters()))
    return run(self)
Trainer.run = counted
"""


def configured(corpus: Path, tmp_path: Path, **training: object) -> list[str]:
    """Arguments of a training whose gradients are clipped, with a batch an utterance."""
    path = write_config(tmp_path / "c.yaml", corpus, tmp_path, clip_norm=0.5, **training)
    return ["--config", str(path), "data.max_batch_seconds=1.5"]


def check_stopped_and_resumed(
    corpus: Path, tmp_path: Path, environment: dict[str, str], **training: object
) -> None:
    """Two ranks with half the model each, stopped in an epoch and resumed: as one rank."""
    arguments = configured(corpus, tmp_path, **training)
    one, two, other = tmp_path / "one", tmp_path / "two", tmp_path / "other"
    assert main([*arguments, *settings(one, 4)]) == 0
    stopped = [*arguments, *settings(two, 2), FSDP]
    told = train_with(2, environment, stopped, [*stopped, "--resume"], before=STOPPED + COUNTED)
    assert "resuming at epoch 1, step 2" in (two / "train.log").read_text()
    found = re.findall(r"holds (\d+)", told)
    total = int(float(re.findall(r"([\d.]+) M parameters", told)[0]) * 1e6)
    assert len(found) == 4
    assert all(int(each) < 0.6 * total for each in found)
    assert apart(two, one) < 1e-5
    curves, final = scores_of(two)
    curves_of_one, final_of_one = scores_of(one)
    assert final == final_of_one
    assert set(curves) == set(curves_of_one)
    # Control: other batches a step.
    assert main([*arguments, *settings(other, 2)]) == 0
    assert apart(other, one) > 1e-4


@pytest.mark.slow
def test_two_ranks_with_half_the_model_train_as_one(
    corpus: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    """Muon, accumulation, clipping, validation, checkpoints, the average and the model file."""
    check_stopped_and_resumed(corpus, tmp_path, environment)


@pytest.mark.slow
@pytest.mark.parametrize(
    "training",
    [{"optimizer": "adamw"}, {"gradient_checkpointing": True, "views": "full_and_chunks"}],
)
def test_so_they_do_with(
    training: dict[str, object], corpus: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    check_stopped_and_resumed(corpus, tmp_path, environment, **training)


@pytest.mark.slow
def test_so_they_do_from_another_model(
    corpus: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    base = configured(corpus, tmp_path, epochs=1, average=1)
    assert main([*base, *settings(tmp_path / "base", 1), "text.case=upper"]) == 0
    model = str(tmp_path / "base" / "model.safetensors")
    check_stopped_and_resumed(
        corpus, tmp_path, environment, start_from=model, average_of="best", average=1
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [((2, FSDP), (1, FSDP)), ((2, FSDP), (4, FSDP)), ((4, FSDP), (2, FSDP)),
     ((2, FSDP), (2, DDP)), ((2, DDP), (4, FSDP)), ((1, DDP), (2, FSDP))],
)  # fmt: skip
def test_another_number_of_ranks_goes_on(
    before: tuple[int, str], after: tuple[int, str],
    corpus: Path, tmp_path: Path, environment: dict[str, str],
) -> None:  # fmt: skip
    """To the weights of one rank that never stopped, whoever wrote the checkpoint."""
    arguments = configured(corpus, tmp_path)
    for stopping, (ranks, parallel) in ((STOPPED, before), ("", after)):
        folder = [*settings(tmp_path / "out", 4 // ranks), parallel, "--resume"]
        train_with(ranks, environment, [*arguments, *folder], before=stopping)
    assert "resuming at epoch 1, step 2" in (tmp_path / "out" / "train.log").read_text()
    assert main([*arguments, *settings(tmp_path / "whole", 4)]) == 0
    assert apart(tmp_path / "out", tmp_path / "whole") < 1e-5


# The second rank's disk is full from the second checkpoint on; ranks write down how they end.
FULL = """
import errno, os
from asrkit import train
from asrkit.training import sharded_checkpoints

def full(path, *rest, write=sharded_checkpoints.write_tensors):
    if os.environ["RANK"] == "1" and "step-00000002" in str(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    write(path, *rest)
sharded_checkpoints.write_tensors = full

def told(arguments, main=train.main):
    print("ended with", main(arguments), flush=True)
    return 0
train.main = told
"""


@pytest.mark.slow
def test_what_one_rank_cannot_write_ends_all_and_the_checkpoint_before_stays(
    corpus: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    arguments = configured(corpus, tmp_path, checkpoint_every_steps=1)
    arguments += [*settings(tmp_path / "out", 2), FSDP]
    told = train_with(2, environment, arguments, before=FULL)
    assert re.findall(r"ended with (\d+)", told) == ["2", "2"]
    assert "No space left on device" in told
    assert "a checkpoint was not written: see another process's error" in told
    folders = [path.name for path in (tmp_path / "out" / "checkpoints").glob("step-*")]
    assert folders == ["step-00000001"]
    train_with(2, environment, [*arguments, "--resume"])
    assert "resuming at epoch 1, step 1" in (tmp_path / "out" / "train.log").read_text()
    assert not list((tmp_path / "out" / "checkpoints").glob(".step*"))
