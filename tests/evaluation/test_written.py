"""Written text: what a wrong mark, a wrong capital and a wrong word change in the scores."""

from collections.abc import Callable

import pytest

from asrkit.config.read_yaml import ConfigError
from asrkit.config.schema import parse_config
from asrkit.evaluation.scoring import score_of
from asrkit.evaluation.written import normalizer_of, rules_of, written
from asrkit.terms import Terms
from asrkit.text import CharTokenizer
from tests.evaluation.test_scoring import outcome
from tests.test_model_file import a_file

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
