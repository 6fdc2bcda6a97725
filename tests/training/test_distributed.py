"""Several ranks: the training and scores of one, another number of ranks, ranks that are killed."""

import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from asrkit.data.recordings import load_recordings
from asrkit.data.sampling import EpochBatches
from asrkit.model_file import load_model
from asrkit.train import main
from asrkit.training import validation
from tests.conftest import PROJECT, write_config
from tests.training.ranks import train_with

# A rank's process, which writes down what it decodes. The second also writes down the audio that it
# reads, and neither reads the corpus nor measures the features.
RANK = """
import os, pathlib, sys
from asrkit.data import recording
from asrkit.training import dataset as corpus, validation

def decoded(*arguments, validate=validation.validate):
    for batch in validate(*arguments):
        with pathlib.Path(__file__).with_name("decoded" + os.environ["RANK"]).open("a") as file:
            print(*(next(iter(each.values())).id for each in batch), file=file)
        yield batch

def recorded(path, first_byte, num_bytes, read=recording.part_of_bytes):
    if num_bytes:
        with pathlib.Path(__file__).with_name("read.txt").open("a") as file:
            print(path, first_byte, file=file)
    return read(path, first_byte, num_bytes)

validation.validate = decoded
if os.environ["RANK"] == "1":
    recording.part_of_bytes, corpus.load_corpus, corpus.feature_statistics = recorded, None, None
from asrkit.train import main
sys.exit(main())
"""


def scores_of(folder: Path) -> tuple[list[str], object]:
    """The curves in a training's log, and the scores in its model file."""
    curves = re.findall(r"dev .*", (folder / "train.log").read_text())
    training = load_model(folder / "model.safetensors").training
    return curves, {key: value for key, value in training.items() if key.startswith("dev_")}


def test_two_ranks_match_one(
    corpus: Path, shards: Path, tmp_path: Path, environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Two ranks with one batch each a step: the weights of one rank with two batches a step.

    The two train from shards, and the second reads what it trains on and nothing else. Each
    decodes its share of the dev set, each utterance once, and the scores are those of one rank.
    """
    seconds = 1.5  # a batch is an utterance
    (tmp_path / "rank.py").write_text(RANK)
    arguments = {}
    for name, batches in (("one", 2), ("two", 1), ("other", 1), ("careless", 2)):
        path, options = tmp_path / f"{name}.yaml", {"epochs": 1, "average": 1}
        write_config(path, corpus, tmp_path / name, accumulate_batches=batches, **options)
        arguments[name] = ["--config", str(path), f"data.max_batch_seconds={seconds}"]
    assert main(arguments["one"]) == 0
    torchrun = ["torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    command = [sys.executable, "-m", *torchrun, str(tmp_path / "rank.py"), *arguments["two"]]
    subprocess.run([*command, f"data.train={shards}"], cwd=PROJECT, env=environment, check=True)
    assert apart(tmp_path / "one", tmp_path / "two") < 1e-5
    packed = load_recordings(str(shards), [])
    share = EpochBatches(packed.durations, seconds, 2, 0, 0, 0, 1, 2)
    rows = [packed[place] for _, places in share for place in places]
    read = (tmp_path / "read.txt").read_text().splitlines()
    assert read == [f"{row.audio} {row.first_byte}" for row in rows]
    assert 0 < len(read) < 12
    decoded = [set((tmp_path / f"decoded{rank}").read_text().split()) for rank in range(2)]
    assert decoded == [{"dev0", "dev2"}, {"dev1"}]
    assert scores_of(tmp_path / "two") == scores_of(tmp_path / "one")
    # Control: another number of batches a step is another training.
    assert main(arguments["other"]) == 0
    assert apart(tmp_path / "one", tmp_path / "other") > 1e-3
    # Control: the first rank's share of the dev set alone.
    validate = validation.validate
    monkeypatch.setattr(validation, "validate", lambda *given: islice(validate(*given), 0, None, 2))
    assert main(arguments["careless"]) == 0
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


def settings(folder: Path, accumulate_batches: int) -> list[str]:
    return [f"training.output_dir={folder}", f"training.accumulate_batches={accumulate_batches}"]


@pytest.mark.slow
def test_two_ranks_go_on_as_one(corpus: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    """With the batches of a step the same: the weights of a training that never stopped."""
    path = write_config(tmp_path / "c.yaml", corpus, tmp_path / "two", accumulate_batches=2)
    arguments = ["--config", str(path), "data.max_batch_seconds=1.5"]
    train_with(2, environment, arguments, before=STOPPED)
    assert not (tmp_path / "two" / "model.safetensors").exists()
    assert main([*arguments, *settings(tmp_path / "two", 4), "--resume"]) == 0
    assert main([*arguments, *settings(tmp_path / "whole", 4)]) == 0
    assert apart(tmp_path / "two", tmp_path / "whole") < 1e-5
    # Control: other batches a step.
    assert main([*arguments, *settings(tmp_path / "other", 2)]) == 0
    assert apart(tmp_path / "other", tmp_path / "whole") > 1e-4


KILLS = 10
STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
PLACES = {"train_step", "validate_epoch", "save"}

# One rank of each start ends itself, as kill -9 does, at a moment drawn by the number of starts.
KILLED_RANK = """
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
    script.write_text(KILLED_RANK)
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
