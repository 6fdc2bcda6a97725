"""Training: it learns, averages, survives bad batches, trades memory, is seen, and ends."""

import itertools
import logging
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import asrkit
from asrkit.config.schema import load_config
from asrkit.errors import UserError
from asrkit.model import FULL, Context
from asrkit.model_file import load_model
from asrkit.training import progress
from asrkit.training.checkpoints import Checkpoints, EpochWeights, Progress
from asrkit.training.dataset import load_corpus
from asrkit.training.distributed import Ranks
from asrkit.training.loss import (
    Loss,
    View,
    recompute_layers,
    wants_bfloat16,
)
from asrkit.training.optimizer import build_optimizers, learning_rate, set_learning_rate
from asrkit.training.progress import EpochLog
from asrkit.training.trainer import Trainer, TrainingError
from tests.conftest import read_rows, tiny_model, write_config
from tests.laws.test_export import need_onnx
from tests.training.test_shards import train


def trainer(corpus: Path, tmp_path: Path, **training: object) -> Trainer:
    from asrkit.build_network import build_model

    config = load_config(write_config(tmp_path / "c.yaml", corpus, tmp_path / "out", **training))
    data = load_corpus(config)
    torch.manual_seed(0)
    model = build_model(config.model, data.encode.tokenizer.vocab_size)
    folder = tmp_path / "out"
    return Trainer(
        model, data, config, Checkpoints(folder / "c"), EpochWeights(folder / "e", 2), Ranks()
    )


def test_it_learns_and_the_file_works(corpus: Path, tmp_path: Path) -> None:
    """The thin slice: twelve utterances until the transcripts are right, offline and streaming."""
    overrides = ["model.dim=32", "model.dropout=0.0", "augmentation.spec_probability=0",
                 "context.full_share=0.5"]  # fmt: skip
    options = {"epochs": 40, "learning_rate": 8e-3, "average": 2, "validate_every_epochs": 40}
    assert train(corpus, tmp_path / "out", *overrides, **options) == 0
    path = tmp_path / "out" / "model.safetensors"
    utterances = read_rows(corpus / "train.jsonl")
    for chunk_size in ("full", 16):
        recognizer = asrkit.load(path, chunk_size=chunk_size)
        texts = [recognizer.transcribe(corpus / u["audio"]).text for u in utterances]
        assert texts == [u["text"] for u in utterances]
    training = load_model(path).training
    assert training["averaged_epochs"] == [39, 40]
    assert set(training["dev_wer"]) == set(training["dev_cer"]) == {"full", "160 ms", "640 ms"}
    for name in ("config.yaml", "train.log", "tensorboard"):
        assert (tmp_path / "out" / name).exists()


@pytest.mark.slow
def test_a_training_writes_exports(corpus: Path, tmp_path: Path) -> None:
    """The log has both before they are made, and one that fails: `t5` has none in full context."""
    need_onnx()
    options = {"epochs": 1, "average": 1, "export": True}
    assert train(corpus, tmp_path / "out", "model.position={kind: t5}", **options) == 0
    path = tmp_path / "out" / "model.safetensors"
    assert asrkit.load(path).backend.kind == "onnx"
    log = (tmp_path / "out" / "train.log").read_text()
    full = f"asrkit export --model {path} --format onnx --chunk-ms full"
    before, done, _ = log.partition(f"{path.stem}.640-2560ms.onnx: ctc, chunks of 640 ms with")
    assert done
    assert f" writing an export: {full.removesuffix(' --chunk-ms full')}\n" in before
    assert f" writing an export: {full}\n" in before
    assert f" not written by {full}: asrkit export: " in log
    assert sorted(each.name for each in path.parent.glob("*.onnx")) == ["model.640-2560ms.onnx"]


def test_learning_rate() -> None:
    rates = [learning_rate(p / 100, 1.0, 0.1) for p in range(101)]
    assert rates[10] == max(rates) == pytest.approx(1.0)
    assert rates[5] == pytest.approx(0.5)
    assert rates[100] == pytest.approx(0.01)
    assert all(a >= b for a, b in itertools.pairwise(rates[10:]))


def test_parts_have_factors_of_the_learning_rate() -> None:
    model = tiny_model()
    factors = {"encoder": 0.5, "encoder.layers.1": 2.0, "head": 10.0}
    for kind in ("adamw", "muon"):
        optimizers = build_optimizers(model, kind, 0.01, factors)
        set_learning_rate(optimizers, 0.1)
        rates = {p: g["lr"] for each in optimizers for g in each.param_groups for p in g["params"]}
        assert len(rates) == len([*model.parameters()])
        for name, parameter in model.named_parameters():
            part = max((key for key in factors if f"{name}.".startswith(f"{key}.")), key=len)
            assert rates[parameter] == pytest.approx(0.1 * factors[part])
        assert set(rates.values()) == {0.05, 0.2, 1.0}
    with pytest.raises(UserError, match=r"rate_factors: the network has no 'haed'; nearest: head"):
        build_optimizers(model, "adamw", 0.01, {"haed": 2.0})


def test_an_epoch_ends_where_the_next_begins(corpus: Path, tmp_path: Path) -> None:
    """Silence put around utterances makes it no longer, what cannot be read no shorter."""
    subject = trainer(corpus, tmp_path)
    silent = {"silence_probability": 1.0, "silence_seconds": 5.0}
    augmentation = subject.config.augmentation.model_copy(update=silent)
    subject.batches.config = subject.config.model_copy(update={"augmentation": augmentation})
    (corpus / "audio" / "train0.flac").unlink()
    seconds, left_out = 0.0, []
    for step in subject.steps():
        subject.train_step(step)
        seconds += sum(int(batch.num_samples.sum()) for batch in step.batches) / 16000
        left_out += [each.id for batch in step.batches for each in batch.left_out]
    assert subject.share() == pytest.approx(0.5, rel=1e-9)  # the first of two epochs
    assert left_out == ["train0"]
    assert seconds > 2 * subject.corpus.seconds


def test_a_loss_that_is_not_finite_skips_the_step(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    subject = trainer(corpus, tmp_path)
    step = next(subject.steps())
    before = {n: p.clone() for n, p in subject.model.named_parameters()}
    step.batches[0].samples[1, 4000] = math.inf
    with caplog.at_level(logging.WARNING):
        subject.train_step(step)
    assert all(torch.equal(before[n], p) for n, p in subject.model.named_parameters())
    assert f"skipped step 0: loss or gradient not finite ({step.batches[0].ids[1]})" in caplog.text
    subject.train_step(next(subject.steps()))
    assert not all(torch.equal(before[n], p) for n, p in subject.model.named_parameters())


@pytest.mark.parametrize("has_bfloat16", [True, False])
def test_auto_takes_bfloat16_where_a_cpu_is_faster_with_it(
    monkeypatch: pytest.MonkeyPatch, has_bfloat16: bool
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has_bfloat16)
    model, cpu = tiny_model(), torch.device("cpu")
    assert not wants_bfloat16("auto", cpu, model)
    monkeypatch.setattr("asrkit.training.loss.FASTER_ON_A_CPU", 1000)
    assert wants_bfloat16("auto", cpu, model) == has_bfloat16
    assert wants_bfloat16("bfloat16", cpu, model)
    assert not wants_bfloat16("float32", cpu, model)


def test_an_epoch_of_which_nothing_can_be_read_ends_training(corpus: Path, tmp_path: Path) -> None:
    """Recordings that go away while it trains: momentum moves no weight, and training says so."""
    subject = trainer(corpus, tmp_path)
    subject.train_epoch()
    subject.progress = Progress(1, 0, subject.progress.step, 0.0)
    before = {n: p.clone() for n, p in subject.model.named_parameters()}
    for path in (corpus / "audio").glob("train*"):
        path.unlink()
    with pytest.raises(TrainingError, match=r"of an epoch's 12 utterances .*max_bad_share 0.1"):
        subject.train_epoch()
    any_share = subject.config.data.model_copy(update={"max_bad_share": 1.0})
    subject.config = subject.config.model_copy(update={"data": any_share})
    with pytest.raises(TrainingError, match="epoch 2 skipped all its steps"):
        subject.train_epoch()
    assert all(torch.equal(before[n], p) for n, p in subject.model.named_parameters())


@pytest.mark.parametrize(
    ("weight_decay", "told"),
    [(0.0, "epoch 2 skipped all its steps"), (1e38, "is not finite at step")],
)
def test_a_training_that_diverges_is_a_users_error(
    weight_decay: float, told: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And writes no model."""
    options = {"learning_rate": 1e38, "weight_decay": weight_decay}
    assert train(corpus, tmp_path / "out", **options) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_gradient_checkpointing_changes_no_gradient() -> None:
    feats, lengths = torch.randn(2, 80, 80, dtype=torch.float64), torch.tensor([80, 60])
    tokens, token_lengths = torch.randint(1, 12, (2, 4)), torch.tensor([4, 3])
    gradients = []
    for recompute in (False, True):
        model = tiny_model(dropout=0.3).train()
        if recompute:
            recompute_layers(model)
        calls = 0

        def count(*_: object) -> None:
            nonlocal calls
            calls += 1

        model.encoder.layers[0].ffn1.register_forward_hook(count)
        torch.manual_seed(1)
        loss = Loss(model, [1], 0.3)([View(feats, Context(4, 8))], lengths, tokens, token_lengths)
        loss.sum().backward()
        gradients.append([p.grad for p in model.parameters()])
        assert calls == (2 if recompute else 1)
    for a, b in zip(*gradients, strict=True):
        assert (a - b).abs().max() < 1e-12


def test_intermediate_loss_is_the_weighted_mean() -> None:
    model = tiny_model()
    feats, lengths = torch.randn(1, 80, 80, dtype=torch.float64), torch.tensor([80])
    views = [View(feats, FULL)]
    batch = (views, lengths, torch.tensor([[1, 2]]), torch.tensor([2]))
    last, first = Loss(model, [], 0.3)(*batch), Loss(model, [1], 1.0)(*batch)
    both = Loss(model, [1], 0.3)(*batch)
    assert both.item() == pytest.approx(0.7 * last.item() + 0.3 * first.item(), rel=1e-6)


@pytest.mark.parametrize("shown", [True, False])
def test_a_line_every_30_seconds(
    shown: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [100.0]
    # The module's own clock: servers of other tests run in threads, and would sleep for hours.
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    # Ranks but the first log warnings only.
    with caplog.at_level(logging.INFO if shown else logging.WARNING):
        log = EpochLog(2, 9, total=3600.0, done=600.0)
        for second in range(100):  # 10 s of audio a second
            now[0] += 1.0
            log.update(600.0 + 10 * (second + 1), 2.0)
    lines = [
        "epoch 3/9  25 %  loss 2.000  10 s of audio a second  about 40 min 30 s left",
        "epoch 3/9  33 %  loss 2.000  10 s of audio a second  about 40 min 00 s left",
        "epoch 3/9  42 %  loss 2.000  10 s of audio a second  about 39 min 30 s left",
    ]
    assert caplog.messages == (lines if shown else [])


def test_a_stop_during_a_sum_over_ranks_holds(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum knows nothing of it: the training ends at the next step, where all ranks know."""
    training = trainer(corpus, tmp_path, epochs=2)
    ranks_sum, stops = training.ranks.sum, []

    def interrupted(*values: float) -> list[float]:
        totals = ranks_sum(*values)
        stops.append(totals[1])
        training.stop = True  # by Ctrl-C, while the ranks wait for each other
        return totals

    monkeypatch.setattr(training.ranks, "sum", interrupted)
    assert not training.run()
    assert stops == [0.0, 1.0]
    assert training.progress.step == 1


@pytest.mark.parametrize(
    ("patience", "epochs"), [(None, 6), (1, 3), (2, 4), (3, 6)]
)  # the third epoch is worse than the second, the fourth equal to it, the fifth better
def test_training_ends_when_dev_no_longer_falls(
    patience: int | None, epochs: int, corpus: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    training = trainer(corpus, tmp_path, epochs=6, patience=patience)
    rates = [90.0, 50.0, 60.0, 50.0, 40.0, 45.0]

    def validate() -> None:
        epoch = training.progress.epoch
        training.history[epoch] = {"full": rates[epoch]}

    monkeypatch.setattr(training, "validate_epoch", validate)
    with caplog.at_level(logging.INFO):
        assert training.run()
    assert training.progress.epoch == epochs
    assert ("training.patience" in caplog.text) == (epochs < 6)
    again = trainer(corpus, tmp_path, epochs=6, patience=patience)
    assert again.resume()
    assert again.run()  # where it has ended, it has ended
    assert again.progress.epoch == epochs
