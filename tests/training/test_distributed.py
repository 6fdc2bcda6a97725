"""Several ranks: shared validation, another number of ranks."""

import re
from pathlib import Path

from asrkit.commands.train import main
from asrkit.model_file import load_model
from tests.conftest import write_config
from tests.training.ranks import train_with

# Ranks write down what they decode; with `careless` the second leaves its share out.
DECODED = """
import os
from asrkit.training import trainer

def recorded(*arguments, validate=trainer.validate):
    rank = os.environ["RANK"]
    for batch in validate(*arguments):
        print("decoded", rank, *(next(iter(each.values())).id for each in batch))
        if rank == "0" or os.environ.get("CARELESS") is None:
            yield batch
trainer.validate = recorded
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
    told = train_with(2, environment, arguments["two"], before=DECODED)
    decoded = re.findall(r"decoded (\d) (.*)", told)
    assert {rank for rank, _ in decoded} == {"0", "1"}
    assert sorted(each for _, each in set(decoded)) == ["dev0", "dev1", "dev2"]
    assert scores_of(tmp_path / "two") == scores_of(tmp_path / "one")
    # Control: a rank that leaves its share out.
    train_with(2, environment | {"CARELESS": "1"}, arguments["careless"], before=DECODED)
    assert scores_of(tmp_path / "careless") != scores_of(tmp_path / "one")
