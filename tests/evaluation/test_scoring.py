"""From recordings to scores: known outcomes, independent losses, written text."""

from collections.abc import Callable

import pytest
import torch

from asrkit.backends.pytorch import eager
from asrkit.config.read_yaml import ConfigError
from asrkit.config.schema import parse_config
from asrkit.errors import UserError
from asrkit.evaluation import Outcome, ReferenceRecording, Score, recognize, scores
from asrkit.evaluation.calibration import calibration, calibration_error
from asrkit.evaluation.delays import Delay
from asrkit.evaluation.outcomes import ReferenceLoss
from asrkit.evaluation.scoring import rates, score_of, unit_rates
from asrkit.evaluation.wer import ErrorRate
from asrkit.evaluation.written import normalizer_of, rules_of, written
from asrkit.model import FULL_CONTEXT, Context
from asrkit.runtime import Recognizer, Result, Word
from asrkit.search import GreedySearch
from asrkit.terms import Terms
from asrkit.text import CharTokenizer
from asrkit.text.graphemes import spaced_units, units
from asrkit.training import loss as training_loss
from tests.conftest import feats_of, speech, tiny_model
from tests.test_model_file import a_file


def outcome(id: str, reference: str, text: str, **more: object) -> Outcome:
    return Outcome(id, 1.0, reference, Result(text, (), True), 40, **more)  # type: ignore[arg-type]


def test_scores_of_two_outcomes_are_as_worked_out() -> None:
    """The second utterance could not be aligned: its words count, its delays do not."""
    outcomes = [
        {"full": outcome("1", "a b", "a b", delays=([5, 3], [3])),
         "40 ms": outcome("1", "a b", "a", delays=([1], []))},
        {"full": outcome("2", "c", "d"), "40 ms": outcome("2", "c", "c")},
    ]  # fmt: skip
    one = ErrorRate(1, 0, 0, 1)
    assert scores(outcomes) == {
        "full": Score(
            ErrorRate(1, 0, 0, 3),
            ErrorRate(1, 0, 0, 4, 4),
            {"1": ErrorRate(0, 0, 0, 2), "2": one},
            0.0,
            Delay(160.0, 160.0, pytest.approx(192.0), 120.0),
        ),
        "40 ms": Score(
            ErrorRate(0, 1, 0, 3),
            ErrorRate(0, 2, 0, 4, 4),
            {"1": ErrorRate(0, 1, 0, 2), "2": ErrorRate(0, 0, 0, 1)},
            0.0,
            Delay(40.0, 40.0, 40.0, None),
        ),
    }
    character = one._replace(characters=1)
    assert scores(outcomes[1:])["full"] == Score(one, character, {"2": one}, 0.0)


@pytest.mark.parametrize(
    ("reference", "text", "expected", "shown"),
    [
        ("而对楼市", "而对楼是", {"cer": 25.0}, "25.00 % (1 of 4: 1 sub, 0 del, 0 ins)"),
        ("ที่นี่ไป", "ที่นี่ไม", {"cer": pytest.approx(100 / 3)}, "33.33 % (1 of 3: 1 sub, 0 del, 0 ins)"),
        ("我 want 楼市", "我 want 楼是", {"mer": 25.0, "cer": pytest.approx(100 / 9)},
         "25.00 % (1 of 4: 1 sub, 0 del, 0 ins), CER 11.11 %"),
        ("I want it all", "I want it al", {"wer": 25.0, "cer": pytest.approx(100 / 13)},
         "25.00 % (1 of 4: 1 sub, 0 del, 0 ins), CER 7.69 %"),
    ],
)  # fmt: skip
def test_texts_are_scored_by_their_units(
    reference: str, text: str, expected: dict[str, float], shown: str
) -> None:
    found = scores([{"full": outcome("1", reference, text)}])
    assert {name: by_name["full"] for name, by_name in rates(found).items()} == expected
    assert unit_rates(found) == {"full": next(iter(expected.values()))}
    assert str(found["full"]) == shown


@pytest.mark.parametrize("text", ["而对楼市", "我们 want 楼市", "a few words here"])
def test_confidences_are_those_of_units(text: str) -> None:
    """All units are right but the last; each has a confidence of 0.9, as one word had 0.9 ** 4."""
    marked, labels = spaced_units(text), units(text)
    last = text.removesuffix(labels[-1]) + "是"
    words = tuple(
        Word(unit.strip(), float(i), i + 1.0, 0.9).with_space(unit[0] == " ")
        for i, unit in enumerate(marked)
    )
    known = (*words[:-1], words[-1]._replace(text="是"))
    one = Outcome("1", 9.0, text, Result(last, known, True), 40)
    count = len(labels)
    found = scores([{"full": one}])["full"]
    assert found.calibration_error == pytest.approx(abs(0.9 - (count - 1) / count))


def test_no_outcomes_are_refused() -> None:
    with pytest.raises(UserError, match="no recording to score"):
        scores([])


def test_loss_is_a_mean_over_tokens() -> None:
    """What cannot be written or aligned has none, and counts for nothing."""
    losses = [ReferenceLoss(6.0, 2), ReferenceLoss(1.0, 5), None]
    outcomes = [
        {"full": outcome(str(i), "a", "a", loss=each), "40 ms": outcome(str(i), "a", "a")}
        for i, each in enumerate(losses)
    ]
    found = {name: score.loss for name, score in scores(outcomes).items()}
    assert found == {"full": 1.0, "40 ms": None}


def test_loss_is_the_trainings_and_takes_no_second_pass() -> None:
    """Row by row of a padded batch, in each context, against the loss that training minimises."""
    model, texts = tiny_model().float(), ["abc", "ba", "a~", "", "abcdefghij" * 5]
    tokenizer = CharTokenizer(list("abcdefghij "))
    lengths = [24000, 20000, 16000, 16000, 16000]
    batch = [
        ReferenceRecording(str(i), speech(2.0, seed=i)[:n], text)
        for i, (n, text) in enumerate(zip(lengths, texts, strict=True))
    ]
    contexts = {"full": (FULL_CONTEXT, 0), "160 ms": (4, 8)}
    recognizers = {
        name: Recognizer(eager(model, Context(*context)), tokenizer, GreedySearch())
        for name, context in contexts.items()
    }
    outcomes = list(recognize([batch], recognizers))
    losses = [[each.loss for each in outcome.values()] for outcome in outcomes]
    assert [loss for loss in losses if None in loss] == [[None, None]] * 3
    with_delays = list(recognize([batch], recognizers, aligner=recognizers["full"]))
    assert [[each.loss for each in o.values()] for o in with_delays] == losses
    for name, (chunk_size, left_context) in contexts.items():
        for i in (0, 1):
            feats = feats_of(batch[i].samples)
            tokens = torch.tensor([tokenizer.encode(texts[i])])
            expected = training_loss.Loss(model, [], 0.0)(
                [training_loss.View(feats, Context(chunk_size, left_context))],
                torch.tensor([feats.size(1)]), tokens, torch.tensor([tokens.size(1)]),
            )  # fmt: skip
            found = outcomes[i][name].loss
            assert found is not None
            assert found.tokens == tokens.size(1)
            assert found.nats == pytest.approx(expected.item(), rel=1e-4)


def test_calibration_of_three_right_words_of_four_is_as_worked_out() -> None:
    words = [Word("a", 0.1, 1.0, 0.95), Word("x", 1.0, 2.0, 0.05), Word("c", 1.7, 3.2, 0.95)]
    found = calibration([(words, ["a", "b", "c"]), ([Word("d", 5.0, 6.0, 0.95)], ["d"])])
    assert found == pytest.approx(0.05)
    assert calibration([([Word("d", 5.0, 6.0, 0.75)], ["e"])]) == 0.75
    assert calibration([]) == 0.0


def test_calibration_error_of_two_bins_is_as_worked_out() -> None:
    """Two bins: 0.2 and 0.4 of which one is right, 0.9 and 1.0 and 0.8 of which two are."""
    confidences, right = [0.2, 0.9, 0.4, 1.0, 0.8], [False, True, True, False, True]
    expected = 2 / 5 * abs(0.3 - 1 / 2) + 3 / 5 * abs(0.9 - 2 / 3)
    assert calibration_error(confidences, right, bins=2) == pytest.approx(expected)
    assert calibration_error([1.0, 0.0], [True, False]) == 0.0
    assert calibration_error([1.0, 0.0], [False, True]) == 1.0


REFERENCE = "Thank you, Bob. Goodbye!"


@pytest.fixture(params=["english", "basic"])
def normalize(request: pytest.FixtureRequest) -> Callable[[str], str]:
    pytest.importorskip("whisper_normalizer")
    found = normalizer_of(request.param)
    assert found is not None
    return found


def test_marks_and_capitals_are_no_errors_of_normalised_words(
    normalize: Callable[[str], str],
) -> None:
    for text, exact, normalized in (
        (REFERENCE, 0, 0),
        ("Thank you. Bob. Goodbye!", 1, 0),
        ("Thank you, Bob. goodbye!", 1, 0),
        ("Thank you, Rob. Goodbye!", 1, 1),  # a control
    ):
        found = score_of([outcome("1", REFERENCE, text)], normalize)
        assert found.written is not None
        assert (found.words.errors, found.written.normalized.errors) == (exact, normalized)


def test_references_without_normalised_words_are_not_counted(
    normalize: Callable[[str], str],
) -> None:
    found = written(["[laughs]", "Yes."], ["ha", "yes"], normalize)
    assert (found.empty, found.normalized.errors, found.normalized.reference_units) == (1, 0, 1)
    nothing = written(["[x]"], ["a"], normalize)
    assert (nothing.normalized.rate, nothing.interval, nothing.empty) == (None, None, 1)


def test_rules_are_those_of_the_language_or_of_the_user() -> None:
    file = a_file(CharTokenizer(list("Aa.")))
    assert rules_of(file) is None
    assert rules_of(file, "basic") == "basic"
    text = file.config.text.model_copy(update={"written": True})
    on = file._replace(config=file.config.model_copy(update={"text": text}))
    assert rules_of(on) == "basic"
    assert rules_of(on._replace(terms=Terms(languages=("en", "de")))) == "english"
    assert rules_of(on._replace(terms=Terms(languages=("de", "en")))) == "basic"


def test_written_text_keeps_its_case() -> None:
    values = {"data": {"train": "t", "dev": "d"}, "training": {"output_dir": "o"}}
    assert parse_config(values | {"text": {"written": True}}).text.written
    with pytest.raises(ConfigError, match=r"text.written needs text.case keep, got lower"):
        parse_config(values | {"text": {"written": True, "case": "lower"}})
