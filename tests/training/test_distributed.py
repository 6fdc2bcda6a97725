"""Several ranks: shared validation, another number of ranks."""

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from asrkit.errors import UserError
from asrkit.model_file import load_model
from asrkit.train import main
from asrkit.training.distributed import check_restarts
from tests.conftest import write_config
from tests.training.ranks import train_with

# Ranks write down what they decode; in their second training the second leaves its share out.
DECODED = """
import json, os, sys
from asrkit.training import validation

def recorded(*arguments, validate=validation.validate):
    rank = os.environ["RANK"]
    careless = os.environ["MASTER_PORT"] == json.loads(sys.argv[1])[1][1]
    for batch in validate(*arguments):
        if not careless:
            print("decoded", rank, *(next(iter(each.values())).id for each in batch))
        if rank == "0" or not careless:
            yield batch
validation.validate = recorded
"""


def scores_of(folder: Path) -> tuple[list[str], object]:
    """The curves in a training's log, and the scores in its model file."""
    curves = re.findall(r"dev .*", (folder / "train.log").read_text())
    training = load_model(folder / "model.safetensors").training
    return curves, {key: value for key, value in training.items() if key.startswith("dev_")}


def test_ranks_share_validation(corpus: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    """Each decodes its share, each utterance once, and the scores are those of one rank."""
    overrides = ["data.max_batch_seconds=1.5"]  # a batch an utterance
    arguments = {}
    for name, batches in (("one", 2), ("two", 1), ("careless", 1)):
        path, options = tmp_path / f"{name}.yaml", {"epochs": 1, "average": 1}
        write_config(path, corpus, tmp_path / name, accumulate_batches=batches, **options)
        arguments[name] = ["--config", str(path), *overrides]
    assert main(arguments["one"]) == 0
    told = train_with(2, environment, arguments["two"], arguments["careless"], before=DECODED)
    decoded = re.findall(r"decoded (\d) (.*)", told)
    assert {rank for rank, _ in decoded} == {"0", "1"}
    assert sorted(each for _, each in set(decoded)) == ["dev0", "dev1", "dev2"]
    assert scores_of(tmp_path / "two") == scores_of(tmp_path / "one")
    # Control: a rank that leaves its share out.
    assert scores_of(tmp_path / "careless") != scores_of(tmp_path / "one")


# Ctrl-C in the second step, which is within the first epoch.
STOPPED = """
from asrkit.training.trainer import Trainer

def stopped(self, group, train_step=Trainer.train_step):
    self.stop = self.progress.step == 1
    return train_step(self, group)
Trainer.train_step = stopped
"""


def apart(a: Path, b: Path) -> float:
    """The largest difference of the weights in two trainings' model files.

    Without the keys' bias, which the softmax cancels: its gradient is rounding alone, and AdamW
    scales that to steps of 1e-4.
    """
    x, y = (load_file(folder / "model.safetensors") for folder in (a, b))
    for weights in (x, y):
        for name in weights:
            if name.endswith("qkv.bias"):
                queries, _, values = weights[name].chunk(3)
                weights[name] = torch.cat([queries, values])
    return max(float((x[name].double() - y[name].double()).abs().max()) for name in x)


def stop_two_ranks(
    corpus: Path, tmp_path: Path, environment: dict[str, str], *overrides: str
) -> list[str]:
    """Two ranks stopped in the middle of an epoch, in "two"; the arguments of the training."""
    path = write_config(tmp_path / "c.yaml", corpus, tmp_path / "two", accumulate_batches=2)
    arguments = ["--config", str(path), "data.max_batch_seconds=1.5", *overrides]
    train_with(2, environment, arguments, before=STOPPED)
    assert not (tmp_path / "two" / "model.safetensors").exists()
    return arguments


def settings(folder: Path, accumulate_batches: int) -> list[str]:
    return [f"training.output_dir={folder}", f"training.accumulate_batches={accumulate_batches}"]


@pytest.mark.slow
def test_two_ranks_go_on_as_one(corpus: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    """With the batches of a step the same: the weights of a training that never stopped."""
    arguments = stop_two_ranks(corpus, tmp_path, environment)
    assert main([*arguments, *settings(tmp_path / "two", 4), "--resume"]) == 0
    assert main([*arguments, *settings(tmp_path / "whole", 4)]) == 0
    assert apart(tmp_path / "two", tmp_path / "whole") < 1e-5
    # Control: other batches a step.
    assert main([*arguments, *settings(tmp_path / "other", 2)]) == 0
    assert apart(tmp_path / "other", tmp_path / "whole") > 1e-4


@pytest.mark.slow
def test_two_ranks_go_on_as_four(corpus: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    arguments = stop_two_ranks(corpus, tmp_path, environment)
    train_with(4, environment, [*arguments, *settings(tmp_path / "two", 1), "--resume"])
    assert main([*arguments, *settings(tmp_path / "whole", 4)]) == 0
    assert apart(tmp_path / "two", tmp_path / "whole") < 1e-5


def test_restarts_that_would_not_find_each_other_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    with pytest.raises(UserError, match="set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"):
        check_restarts()
    for variable, value in (("USE_AGENT_STORE", "False"), ("MAX_RESTARTS", "0")):  # controls
        with monkeypatch.context() as other:
            other.setenv(f"TORCHELASTIC_{variable}", value)
            check_restarts()
