"""What training says of its held-out set, and to trackers."""

import re
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from asrkit.commands.report import main as report
from asrkit.config.schema import load_config
from asrkit.data.recordings import load_recordings
from asrkit.data.text_encoder import TextEncoder
from asrkit.model import Context
from asrkit.model.head import ctc_frames
from asrkit.model_file import load_model
from asrkit.search import GreedySearch
from asrkit.text import CharTokenizer
from asrkit.training import trainer
from asrkit.training.trackers import Tracker
from asrkit.training.validation import held_out, scores_on, validate
from tests.conftest import tiny_model, write_config
from tests.running import run
from tests.training.test_shards import train


def read_scalars(folder: Path, tag: str) -> list[float]:
    """Read the values of a tag that a training logged for TensorBoard."""
    events = EventAccumulator(str(folder)).Reload()
    return [event.value for event in events.Scalars(tag)]


@pytest.mark.parametrize(("average", "times"), [(1, 2), (2, 3)])
def test_a_run_stuck_at_all_wrong_shows_its_loss(
    average: int, times: int, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the log and in TensorBoard, where the rates alone say nothing of progress.

    An average is scored besides its epochs; the last epoch as the model is scored once.
    """
    scored = []
    monkeypatch.setattr(trainer, "scores_on", lambda *given: scored.append(1) or scores_on(*given))
    assert train(corpus, tmp_path / "out", epochs=2, average=average) == 0
    assert len(scored) == times
    log = (tmp_path / "out" / "train.log").read_text()
    lines = re.findall(r"dev loss  full: (\S+) a token  160 ms: (\S+) a token  640 ms:", log)
    assert len(lines) == 2
    losses = read_scalars(tmp_path / "out" / "tensorboard", "dev_loss/160 ms")
    assert [f"{loss:.3f}" for loss in losses] == [line[1] for line in lines]
    assert losses[1] < losses[0]


def test_written_text_has_a_normalised_rate(corpus: Path, tmp_path: Path) -> None:
    """In the log, in TensorBoard, in the model file, and on the page of the report."""
    pytest.importorskip("whisper_normalizer")
    folder = tmp_path / "out"
    assert train(corpus, folder, "text.written=true", "data.languages=[en]", epochs=1) == 0
    log = (folder / "train.log").read_text()
    assert re.search(r"dev normalised WER  full: \S+ %  160 ms", log)
    assert re.search(r"dev WER +full  .*, normalised WER \S+ %; tokens", log)
    assert read_scalars(folder / "tensorboard", "normalized_wer/full")
    assert "dev_normalized_wer" in load_model(folder / "model.safetensors").training
    assert report([str(folder)]) == 0
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Normalised by the english rules" in page


def test_weights_that_changed_are_validated_as_they_are(corpus: Path) -> None:
    """Backends keep tables made of the weights: those of the step before must not be used."""
    model, tokenizer = tiny_model().float(), CharTokenizer(list("eno syabcdf"))
    encode = TextEncoder(tokenizer, str, model.encoder.rate.num_frames, ctc_frames)
    batches = list(held_out(load_recordings(str(corpus / "dev.jsonl"), []), encode, 60.0))

    def losses() -> list[float]:
        found = validate(model, tokenizer, GreedySearch(), batches, [Context(4, 8)])
        return [each["160 ms"].loss.nats for batch in found for each in batch]  # type: ignore[union-attr]

    before = losses()
    assert losses() == before
    with torch.no_grad():
        for layer in model.encoder.layers:
            layer.attention.position.projection.weight.mul_(3.0)
    assert all(a != pytest.approx(b, rel=1e-4) for a, b in zip(losses(), before, strict=True))


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
