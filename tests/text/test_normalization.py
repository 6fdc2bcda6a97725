"""Normalisation of transcripts: each rule, what it leaves alone, and the counts of its changes."""

import sys
import time
from importlib.util import find_spec

import pytest

from asrkit.errors import UserError
from asrkit.text.marks import marks_in
from asrkit.text.normalization import Normalization, Normalizer
from tests.conftest import skip
from tests.data.checks.test_check import MARKS, SOUND

PLAIN, BARE = Normalization(), Normalization(case="lower", punctuation="remove")


@pytest.mark.parametrize(
    ("choices", "text", "expected"),
    [
        (PLAIN, "Rock &amp; roll, it&#39;s <b>on</b>", "Rock & roll, it's on"),
        (PLAIN, "GrÃ¼n donâ€™t привет", "Grün don't привет"),
        (PLAIN, "cafe\u0301 so\u00adft a\u00a0b\tc \ufeffd", "café soft a b c d"),
        (PLAIN, "yes [laughs] (hm) no ♪ :-) 🙂", "yes no"),
        (PLAIN._replace(brackets="words"), "so (I mean it) *really*", "so I mean it really"),
        (PLAIN._replace(brackets="keep"), "so (I mean it) [x]", "so (I mean it) [x]"),
        (BARE._replace(brackets="keep"), "So (I, he) [x].", "so (i, he) [x]"),
        (PLAIN, "don’t “Hi” well‐known", 'don\'t "Hi" well-known'),
        (BARE, "¿Qué? Don't—well-known: 'tis 3.5!", "qué don't well-known 'tis 3.5"),
        (BARE, "See www.example.com, 50 % & more", "see www.example.com, 50 % & more"),
        (Normalization(case="upper"), "straße", "STRASSE"),
        (PLAIN, "ﻋﻠﻲ ｶﾞ ＮＨＫ ﬁsh, ½ x²！", "علي ガ NHK fish, ½ x²！"),
    ],
)
def test_rules(choices: Normalization, text: str, expected: str) -> None:
    assert Normalizer(choices)(text) == expected
    assert Normalizer(choices)(expected) == expected  # twice changes nothing


@pytest.mark.parametrize("text", SOUND)
def test_sound_texts_stay(text: str) -> None:
    assert Normalizer(PLAIN)(text) == text
    assert Normalizer(PLAIN._replace(punctuation="remove"))(text) == text


@pytest.mark.parametrize("kind", ["markup", "annotation", "emoji"])
def test_nothing_that_the_checks_find_remains(kind: str) -> None:
    for text in MARKS[kind]:
        after = Normalizer(PLAIN)(text)
        assert after != text
        assert kind not in marks_in(after), (text, after)


def test_marks_are_found_as_they_are_written() -> None:
    """Apostrophes and hyphens of words are no marks, but parts of other marks."""
    assert marks_in("www.my-site.com [don't] it's well-known") == {
        "address": ["www.my-site.com"], "annotation": ["[don't]"],
    }  # fmt: skip


def test_changes_are_counted() -> None:
    normalizer = Normalizer(BARE)
    for text in ("A, b.", "A [x]", "a b", "cafe\u0301"):
        normalizer(text)
    assert list(normalizer.lines()) == [
        "punctuation      2: ',' removed 1×; '.' removed 1×",
        "case             2: 'A' → 'a' 2×",
        "brackets         1: '[x]' removed 1×",
        "Unicode          1: 'cafe\\u0301' → 'café' 1×",
    ]


NUMBERS = [
    ("en", "23 dogs, 1020 cats; 0.", "twenty three dogs, one thousand and twenty cats; zero."),
    ("en", "in 1984 007 10:30 B2B 3/4 -5 1.000 3.5 3rd 555 1234 12-13 x² 9999999999999999", None),
    ("en", "$5 50% 100€ #1 +7 5+5, 8, 9 %", "$5 50% 100€ #1 +7 5+5, eight, nine %"),
    ("de", "23 Hunde", "dreiundzwanzig Hunde"),
]  # fmt: skip


@pytest.mark.parametrize(("language", "text", "expected"), NUMBERS)
def test_numbers(language: str, text: str, expected: str | None) -> None:
    if find_spec("num2words") is None:
        skip("num2words is missing")
    assert Normalizer(Normalization(numbers=language))(text) == (expected or text)


def test_numbers_need_a_known_language_and_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("num2words") is not None:
        with pytest.raises(UserError, match=r"--numbers: the language must be one of am, .* 'xx'"):
            Normalizer(Normalization(numbers="xx"))
    monkeypatch.setitem(sys.modules, "num2words", None)
    with pytest.raises(UserError, match="num2words not installed: pip install"):
        Normalizer(Normalization(numbers="en"))


HOSTILE = ("[", "*", "1,", "&a", "'", "_a ", "a", "a.", "a-", "a@", "Ã¼")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_have_a_bound_on_time(text: str) -> None:
    start = time.process_time()
    Normalizer(BARE)(text * 9999)
    assert time.process_time() - start < 5
