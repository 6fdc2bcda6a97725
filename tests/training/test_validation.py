"""From utterances to a corpus: scores of known outcomes."""

import re
from pathlib import Path

import pytest
import torch

from asrkit import audio
from asrkit.commands.report.events import read_scalars
from asrkit.commands.train import main
from asrkit.data.dataset import Batch
from asrkit.data.manifest import ManifestError
from asrkit.evaluation.delays import Delay
from asrkit.evaluation.wer import ErrorRate
from asrkit.model import FULL_CONTEXT, ConformerCTC, CTCLoss, View
from asrkit.search.greedy import GreedySearch
from asrkit.text import CharTokenizer
from asrkit.training.validation import Loss, Outcome, Score, Validation, losses_of, rates, scores
from tests.conftest import speech, tiny_model, write_config


def test_scores() -> None:
    """The second utterance could not be aligned: its words count, its delays do not."""
    outcomes = [
        Outcome("1", 1.0, "a b", {"full": "a b", "40 ms": "a"},
                {"full": ([5, 3], [3]), "40 ms": ([1], [])}, {}),
        Outcome("2", 1.0, "c", {"full": "d", "40 ms": "c"}, {}, {}),
    ]  # fmt: skip
    one = ErrorRate(1, 0, 0, 1)
    assert scores(outcomes) == {
        "full": Score(
            ErrorRate(1, 0, 0, 3),
            ErrorRate(1, 0, 0, 4),
            Delay(160.0, 160.0, pytest.approx(192.0), 120.0),
            {"1": ErrorRate(0, 0, 0, 2), "2": one},
        ),
        "40 ms": Score(
            ErrorRate(0, 1, 0, 3),
            ErrorRate(0, 2, 0, 4),
            Delay(40.0, 40.0, 40.0, None),
            {"1": ErrorRate(0, 1, 0, 2), "2": ErrorRate(0, 0, 0, 1)},
        ),
    }
    assert scores(outcomes[1:])["full"] == Score(one, one, None, {"2": one})


def test_without_spaces_characters_count() -> None:
    """One of four is wrong; of the words, which there are none of, all."""
    found = scores([Outcome("1", 1.0, "而对楼市", {"full": "而对楼是"}, {}, {})])
    assert rates(found) == {"wer": {"full": 100.0}, "cer": {"full": 25.0}}
    assert str(found["full"]).endswith(", CER 25.00 %")


def test_scores_of_nothing() -> None:
    with pytest.raises(ManifestError, match="no utterance"):
        scores([])


def test_loss_is_a_mean_over_tokens() -> None:
    """What cannot be written or aligned has none, and counts for nothing."""
    losses = [{"full": Loss(6.0, 2)}, {"full": Loss(1.0, 5)}, {}]
    outcomes = [
        Outcome(str(i), 1.0, "a", {"full": "a", "40 ms": "a"}, {}, {}, losses=each)
        for i, each in enumerate(losses)
    ]
    assert losses_of(scores(outcomes)) == {"full": 1.0}


def test_loss_is_the_trainings_and_takes_no_second_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row by row of a padded batch, in each context, against the loss that training minimises."""
    model, texts = tiny_model(), ["abc", "ba", "a~", "", "abcdefghij" * 5]
    model.float()
    tokenizer = CharTokenizer(list("abcdefghij "))
    lengths = torch.tensor([24000, 20000, 16000, 16000, 16000])
    samples = torch.zeros(5, 24000)
    for i, n in enumerate(lengths.tolist()):
        samples[i, :n] = torch.from_numpy(speech(2.0, seed=i)[:n])
    nothing = torch.zeros(5, 0, dtype=torch.int64)
    ids = [str(i) for i in range(5)]
    batch = Batch("0", ids, samples, lengths, nothing, lengths * 0, texts, [], 0.0)
    contexts = [(FULL_CONTEXT, 0), (4, 8)]
    subject = Validation(model, audio.Fbank(), tokenizer, GreedySearch(), [batch], contexts)
    calls, forward = 0, ConformerCTC.forward

    def counted(self: ConformerCTC, *arguments: object) -> object:
        nonlocal calls
        calls += 1
        return forward(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ConformerCTC, "forward", counted)
    outcomes = list(subject.recognize())
    assert calls == len(contexts)
    assert [len(outcome.losses) for outcome in outcomes] == [2, 2, 0, 0, 0]
    assert [outcome.losses for outcome in subject.measure()] == [o.losses for o in outcomes]
    feats, num_frames = audio.features(audio.Fbank(), samples, lengths)
    for (chunk_size, left_context), name in zip(contexts, ("full", "160 ms"), strict=True):
        for i in (0, 1):
            tokens = torch.tensor([tokenizer.encode(texts[i])])
            view = View(feats[i : i + 1, : num_frames[i]], chunk_size, left_context)
            expected = CTCLoss(model, [], 0.0)(
                [view], num_frames[i : i + 1], tokens, torch.tensor([tokens.size(1)])
            )
            found = outcomes[i].losses[name]
            assert found.tokens == tokens.size(1)
            assert found.nats == pytest.approx(expected.item(), rel=1e-4)


def test_a_run_stuck_at_all_wrong_shows_its_loss(corpus: Path, tmp_path: Path) -> None:
    """In the log and in TensorBoard, where the rates alone say nothing of progress."""
    config = write_config(tmp_path / "c.yaml", corpus, tmp_path / "out", epochs=2)
    assert main(["--config", str(config)]) == 0
    log = (tmp_path / "out" / "train.log").read_text()
    lines = re.findall(r"dev loss  full: (\S+) a token  160 ms: (\S+) a token  640 ms:", log)
    assert len(lines) == 2
    scalars = read_scalars(tmp_path / "out" / "tensorboard")["dev_loss/160 ms"]
    assert [f"{scalar.value:.3f}" for scalar in scalars] == [line[1] for line in lines]
    assert scalars[1].value < scalars[0].value
