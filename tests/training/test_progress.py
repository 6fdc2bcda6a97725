"""A training that is seen: a line every 30 seconds; it ends when dev does."""

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from asrkit.training import progress
from asrkit.training.progress import EpochLog
from tests.training.test_trainer import trainer


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
