"""Written text: what a wrong mark, a wrong capital and a wrong word change in the scores."""

import sys
from collections.abc import Callable

import pytest

from asrkit.config import ConfigError
from asrkit.config.schema import parse_config
from asrkit.errors import UserError
from asrkit.evaluation.scoring import Score, score_of
from asrkit.evaluation.written import Found, normalizer_of, parted, rules_of, written
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


def score(normalize: Callable[[str], str], text: str, reference: str = REFERENCE) -> Score:
    return score_of([outcome("1", reference, text)], normalize)


def f1(score: Score) -> dict[str, float | None]:
    assert score.written is not None
    return {mark: each.f1 for mark, each in score.written.marks.items()}


def test_a_swapped_mark_or_capital_is_no_error_of_normalised_words(
    normalize: Callable[[str], str],
) -> None:
    right = score(normalize, REFERENCE)
    assert f1(right) == {"capitals": 1.0, ",": 1.0, ".": 1.0, "!": 1.0}
    for text, wrong in (
        ("Thank you. Bob. Goodbye!", {",": 0.0, ".": pytest.approx(2 / 3)}),
        ("Thank you, Bob Goodbye!", {".": 0.0}),
        ("Thank you, Bob. goodbye!", {"capitals": pytest.approx(0.8)}),
        ("Thank you, BOB. Goodbye!", {"capitals": pytest.approx(2 / 3)}),
    ):
        found = score(normalize, text)
        assert found.words.errors == 1
        assert found.written is not None
        assert found.written.normalized.errors == 0
        assert f1(found) == f1(right) | wrong
    word = score(normalize, "Thank you, Rob. Goodbye!")  # the control: marks and capitals are right
    assert word.words.errors == 1
    assert word.written is not None
    assert word.written.normalized.errors == 1
    assert f1(word) == f1(right)


def test_counts_of_marks() -> None:
    def found(reference: str, text: str) -> dict[str, Found]:
        return written([reference], [text], str.lower).marks

    assert found("A b, c.", "a b c. D,") == {
        "capitals": Found(1, 1, 0), ",": Found(1, 1, 0), ".": Found(1, 1, 1),
    }  # fmt: skip
    assert found("", "Yes.") == {"capitals": Found(0, 1, 0), ".": Found(0, 1, 0)}
    assert found("¿Sí? No.", "Sí? No.")["¿"] == Found(1, 0, 0)
    assert found("no", "no") == {"capitals": Found(0, 0, 0)}
    assert Found(0, 0, 0).f1 is Found(0, 1, 0).recall is Found(1, 0, 0).precision is None


def test_signs_inside_of_words_are_not_marks() -> None:
    words, marks = parted("“Don't, U.S. state-owned 3.5%... 'tis!” — so")
    assert words == ["don't", "u.s", "state-owned", "3.5", "'tis", "so"]
    assert marks == [
        {"“"}, {",", "capitals [0]"}, {".", "capitals [0, 2]"}, set(), {"%", "…"}, {"!", "”", "—"},
        set(),
    ]  # fmt: skip


def test_marks_between_characters_without_spaces_are_found() -> None:
    words, marks = parted("「你好，iPhone手机。")
    assert words == ["你", "好", "iphone", "手", "机"]
    assert marks == [{"「"}, set(), {"，"}, {"capitals [1]"}, set(), {"。"}]
    found = written(["你好，世界。"], ["你好世界。"], str.lower)
    assert found.marks["，"] == Found(1, 0, 0)
    assert found.marks["。"] == Found(1, 1, 1)
    assert str(found).startswith("normalised CER 25.00 %")


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


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "whisper_normalizer", None)
    with pytest.raises(UserError, match=r"whisper_normalizer not installed: pip install .*written"):
        normalizer_of("english")
