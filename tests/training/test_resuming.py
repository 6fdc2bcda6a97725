"""What --resume accepts: the same network and texts; other changes are named."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from asrkit.config.read_yaml import ConfigError
from asrkit.config.schema import load_config
from asrkit.train import main
from asrkit.training.checkpoints import (
    Checkpoint,
    Progress,
    TrainingCheckpointError,
    read_checkpoint,
)
from asrkit.training.resume_checks import check_same
from asrkit.training.trainer import Trainer
from tests.conftest import PROJECT, write_config

SCHEDULE = {
    "training.epochs=3": "training.epochs (1 → 3)",
    "training.seed=1": "training.seed (0 → 1)",
    "training.learning_rate=1e-2": "training.learning_rate (0.002 → 0.01)",
    "training.warmup_share=0.2": "training.warmup_share (0.08 → 0.2)",
    "training.views=same": "training.views ('one' → 'same')",
    "training.accumulate_batches=2": "training.accumulate_batches times ranks (1 → 2)",
    "data.max_batch_seconds=3": "data.max_batch_seconds (4.0 → 3.0)",
    "data.num_buckets=3": "data.num_buckets (2 → 3)",
    "augmentation.gain_db=3": "augmentation.gain_db (0.0 → 3.0)",
    "augmentation.speed_factors=[0.9]": "augmentation.speed_factors",
    "context.chunk_sizes=[8]": "context.chunk_sizes ([4, 16] → [8])",
    "model.dropout=0.2": "model.dropout (0.1 → 0.2)",
    "data.min_seconds=1.3": "data.min_seconds",
    f"augmentation.noise=/{'n' * 5000}": "augmentation.noise (None → '/nnn",
}
FIXED = {
    "model.kernel_size=6": "model.kernel_size (5 → 6)",
    "text.case=upper": "text.case ('keep' → 'upper')",
    "training.optimizer=adamw": "training.optimizer ('muon' → 'adamw')",
    "training.start_from=small-en-alnum": "training.start_from (None → 'small-en-alnum')",
    "model.head.predictor_dim=8": "model.head.predictor_dim (256 → 8)",
}


def config_of(tmp_path: Path, *overrides: str) -> Any:
    (tmp_path / "corpus").mkdir(exist_ok=True)
    path = write_config(tmp_path / "c.yaml", tmp_path / "corpus", tmp_path / "out", epochs=1)
    return load_config(path, list(overrides))


@pytest.fixture
def begin(corpus: Path, tmp_path: Path) -> list[str]:
    """Arguments of a training of one epoch."""
    return ["--config", str(write_config(tmp_path / "c.yaml", corpus, tmp_path / "out", epochs=1))]


@pytest.fixture
def resume(begin: list[str]) -> list[str]:
    """Arguments that resume it after its end."""
    assert main(begin) == 0
    return [*begin, "--resume"]


def test_another_text_is_refused_and_nothing_changes(
    resume: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.*t*")}
    kept.pop(tmp_path / "out" / "train.log", None)
    assert main([*resume, "text.case=upper"]) == 2
    told = f"--resume: the training in {tmp_path}/out has another text.case ('keep' → 'upper'), "
    assert f"{told}tokenizer; use the same" in capsys.readouterr().err
    assert all(path.read_bytes() == content for path, content in kept.items())


def test_another_schedule_goes_on_and_is_logged(resume: list[str], tmp_path: Path) -> None:
    resume += ["training.epochs=2"]
    assert main(resume) == 0
    log = (tmp_path / "out" / "train.log").read_text()
    assert "changed at step 6: training.epochs (1 → 2)" in log
    assert "epoch 2/2" in log
    assert main(resume) == 0  # it is the training's schedule now
    log = (tmp_path / "out" / "train.log").read_text()
    assert log.count("changed at step") == log.count("the training is complete") == 1


def found_of(config: Any, ranks: int = 1, epoch: int = 0, **more: Any) -> Checkpoint:
    return Checkpoint(
        weights={}, optimizers=[], progress=Progress(epoch), history={},
        config=config.model_dump(mode="json"), ranks=ranks, **more,
    )  # fmt: skip


def changes(*found: Any, caplog: pytest.LogCaptureFixture, ranks: int = 1) -> list[str]:
    """Return what is logged of the changes from a checkpoint to a configuration."""
    caplog.clear()
    check_same(found[0], {}, found[1], ranks)
    return [each.partition(": ")[2] for each in caplog.messages]


@pytest.mark.parametrize(("override", "told"), SCHEDULE.items())
def test_a_change_of_the_schedule_is_named(
    override: str, told: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found, config = found_of(config_of(tmp_path)), config_of(tmp_path, override)
    (line,) = changes(found, config, caplog=caplog)
    assert line.startswith(told)
    assert len(line) < 150
    assert changes(found_of(config), config, caplog=caplog) == []


@pytest.mark.parametrize(("override", "told"), FIXED.items())
def test_another_network_is_refused(override: str, told: str, tmp_path: Path) -> None:
    start = ["model.head.kind=transducer"] * override.startswith("model.head")
    found, config = config_of(tmp_path, *start), config_of(tmp_path, *start, override)
    with pytest.raises(ConfigError) as caught:
        check_same(found_of(found), {}, config, 1)
    start = f"--resume: the training in {tmp_path}/out has another "
    assert str(caught.value).startswith(f"{start}{told}; use the same")
    assert len(str(caught.value)) < 250 + len(str(tmp_path))


def test_labels_are_compared_with_a_checkpoint_of_an_earlier_version(tmp_path: Path) -> None:
    """It has the hash of the tokenizer beside the weights, as the kept one."""
    (kept,) = (PROJECT / "tests" / "kept" / "out" / "checkpoints").glob("*.pt")
    labels, config = torch.load(kept, weights_only=True)["the tokenizer"], config_of(tmp_path)
    stored = read_checkpoint(kept).model_copy(update={"config": config.model_dump(mode="json")})
    check_same(stored, {"the tokenizer": labels}, config, 1)  # control
    with pytest.raises(ConfigError, match="has another tokenizer; use the same"):
        check_same(stored, {"the tokenizer": "0123"}, config, 1)


def test_fewer_epochs_than_are_done_and_a_damaged_configuration(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    found = found_of(config, epoch=3)
    with pytest.raises(ConfigError, match=r"training.epochs is 1, but 3 epochs are already done"):
        check_same(found, {}, config, 1)
    found.config["model"]["dim"] = "wide"
    with pytest.raises(TrainingCheckpointError, match="its configuration is damaged: "):
        check_same(found, {}, config, 1)


def test_a_manifest_that_was_edited_is_named(
    resume: list[str], corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Texts, audio files and durations; a folder that was moved is the same."""
    shutil.copy(corpus / "audio" / "train0.flac", corpus / "copy.flac")
    for name, key, change in (
        ("train", "training", {"text": "no"}),
        ("train", "training", {"audio": "copy.flac"}),
        ("dev", "dev", {"duration": 0.9}),
    ):
        path = corpus / f"{name}.jsonl"
        kept = path.read_text()
        first, *others = kept.splitlines()
        path.write_text("\n".join([json.dumps(json.loads(first) | change), *others]))
        capsys.readouterr()
        assert main(resume) == 0
        assert f"changed at step 6: the {key} utterances" in capsys.readouterr().err
        path.write_text(kept)
    moved = Path(shutil.move(corpus, tmp_path / "moved"))
    paths = [f"data.{name}={moved / name}.jsonl" for name in ("train", "dev")]
    assert main([*resume, *paths]) == 0
    assert "utterances" not in capsys.readouterr().err.partition("changed")[2]


def test_a_finished_model_without_checkpoints_stays(
    begin: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing can be resumed: it would be trained from the beginning, and replaced."""
    model = tmp_path / "out" / "model.safetensors"
    model.parent.mkdir()
    model.write_bytes(b"of a week")
    assert main([*begin, "--resume"]) == 2
    assert "has a model.safetensors but no checkpoint" in capsys.readouterr().err
    assert model.read_bytes() == b"of a week"
    model.unlink()
    assert main([*begin, "--resume"]) == 0
    assert f"no checkpoint in {model.parent}: training begins" in capsys.readouterr().err


def test_two_trainings_never_share_a_folder(
    begin: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lock goes with its process, however that ends."""
    folder = tmp_path / "out"
    folder.mkdir()
    lock = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX)"
    code = f"{lock}; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(folder / "train.log")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as other:  # type: ignore[call-overload]
        other.stdout.readline()
        assert main(begin) == 2
        assert f"{folder}: another training runs there" in capsys.readouterr().err
        other.kill()
    assert main(begin) == 0


def test_another_number_of_ranks_with_the_same_batches_a_step_is_no_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two ranks of two are one of four."""
    config = config_of(tmp_path, "training.accumulate_batches=2")
    found = found_of(config, ranks=2)
    for ranks, batches in ((1, 4), (2, 2), (4, 1)):
        same = config_of(tmp_path, f"training.accumulate_batches={batches}")
        assert changes(found, same, caplog=caplog, ranks=ranks) == []
    told = "training.accumulate_batches times ranks (4 → 2)"
    assert changes(found, config, caplog=caplog) == [told]


def test_processes_that_find_other_checkpoints() -> None:
    """Of folders of their own, of which one has no checkpoint."""
    others = SimpleNamespace(gather=lambda found: [*found, Progress(1)])
    options = SimpleNamespace(output_dir="exp")
    trainer: Any = SimpleNamespace(checkpoints=MagicMock(), ranks=others, options=options)
    with pytest.raises(TrainingCheckpointError, match=r"output_dir exp; use a folder that all"):
        Trainer.resume(trainer)
