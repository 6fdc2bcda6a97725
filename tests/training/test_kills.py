"""Ranks that are killed, again and again, under torchrun: the weights are those of a quiet run."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.conftest import PROJECT, write_config

KILLS = 10
STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
PLACES = {"train_step", "validate_epoch", "save"}

# One rank of each start ends itself, as kill -9 does, at a moment drawn by the number of starts.
RANK = """
import os, random, signal, sys, threading
from pathlib import Path
from asrkit.train import main
from asrkit.training.trainer import Trainer

folder, kills, careless = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "careless"
start = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
draw = random.Random(f"kill {start}")
victim, name = draw.randrange(2), draw.choice(["train_step", "validate_epoch", "save"])
number = 1 if name == "validate_epoch" else draw.randint(1, 4)
delay = draw.uniform(0.0, 0.03)
calls = 0

def end():
    (folder / f"kill-{start:02d}").write_text(name)
    os.kill(os.getpid(), signal.SIGKILL)

def counted(*arguments, act=getattr(Trainer, name)):
    global calls
    calls += 1
    if calls != number:
        return act(*arguments)
    timer = threading.Timer(delay, end)
    timer.start()
    act(*arguments)
    timer.join()  # or a late timer, on a busy machine, leaves too few steps for the other kills

if start < kills and int(os.environ["RANK"]) == victim:
    setattr(Trainer, name, counted)

def resumed(self, *arguments, resume=Trainer.resume):
    found = resume(self, *arguments)
    if careless:
        self.progress = self.progress._replace(batch=0)
    return found
Trainer.resume = resumed
sys.exit(main(sys.argv[4:]))
"""


def train(
    folder: Path, config: Path, environment: dict[str, str], kills: int, *options: str
) -> tuple[dict[str, torch.Tensor], list[str]]:
    """The weights of a training of two ranks with so many kills, and where these were."""
    folder.mkdir()
    script = folder / "rank.py"
    script.write_text(RANK)
    careless = "careless" if "careless" in options else "careful"
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                "--max-restarts", str(kills), "--monitor-interval", "0.1"]  # fmt: skip
    settings = [f"training.output_dir={folder / 'out'}", *(o for o in options if "=" in o)]
    subprocess.run(
        [sys.executable, "-m", *torchrun, str(script), str(folder), str(kills), careless,
         "--config", str(config), "--resume", *settings],
        cwd=PROJECT, env=environment | STORE, check=True, capture_output=True, timeout=900,
    )  # fmt: skip
    places = [path.read_text() for path in sorted(folder.glob("kill-*"))]
    assert len(places) == kills
    return load_file(folder / "out" / "model.safetensors"), places


@pytest.mark.slow
def test_ranks_killed_ten_times_train_what_they_would_have(
    corpus: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    """In steps, while checkpoints are written and while dev is scored: bit for bit."""
    config = write_config(tmp_path / "c.yaml", corpus, tmp_path, epochs=8, checkpoint_every_steps=1)
    options = ["data.max_batch_seconds=1.5"]
    whole, _ = train(tmp_path / "whole", config, environment, 0, *options)
    killed, places = train(tmp_path / "killed", config, environment, KILLS, *options)
    assert set(places) == PLACES, places
    assert all(torch.equal(killed[name], whole[name]) for name in whole)
    # Control: one that resumes and forgets which batches of the epoch it has trained on.
    careless, _ = train(tmp_path / "careless", config, environment, 2, "careless", *options)
    assert not all(torch.equal(careless[name], whole[name]) for name in whole)
