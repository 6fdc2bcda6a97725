"""Normalisation of transcripts: each rule, what it leaves alone, and the counts of its changes."""

import re
import sys
import time
from importlib.util import find_spec

import pytest

from asrkit.errors import UserError
from asrkit.text.marks import marks_in
from asrkit.text.normalization import Changes, Normalization, Normalizer
from tests.conftest import skip
from tests.data.checks.test_texts import FOUND, SOUND

PLAIN, BARE = Normalization(), Normalization(case="lower", punctuation="remove")


@pytest.mark.parametrize(
    ("choices", "text", "expected"),
    [
        (PLAIN, "Rock &amp; roll, it&#39;s <b>on</b> new%20york", "Rock & roll, it's on new york"),
        (PLAIN, r"caf\u00e9 one\ntwo don\'t \x41 \ud800", "café one two don't A"),
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


@pytest.mark.parametrize("kind", ["markup", "annotation", "emoji", "encoding"])
def test_nothing_that_the_checks_find_remains(kind: str) -> None:
    for text in FOUND[kind]:
        after = Normalizer(PLAIN)(text)
        assert after != text
        assert kind not in marks_in(after), (text, after)


def test_marks_are_found_as_they_are_written() -> None:
    """Apostrophes and hyphens of words are no marks, but parts of other marks."""
    assert marks_in("www.my-site.com [don't] it's well-known") == {
        "address": ["www.my-site.com"], "annotation": ["[don't]"],
    }  # fmt: skip


def test_changes_are_counted() -> None:
    changes, normalizer = Changes(), Normalizer(BARE)
    for text in ("A, b.", "A [x]", "a b"):
        normalizer(text, changes)
    assert list(changes.lines()) == [
        "punctuation      2 in 1 texts: ',' removed 1×; '.' removed 1×",
        "case             2 in 2 texts: 'A' → 'a' 2×",
        "brackets         1 in 1 texts: '[x]' removed 1×",
    ]
    changes = Changes()
    Normalizer(PLAIN)("cafe\u0301", changes)
    assert "'cafe\\u0301' → 'café'" in next(changes.lines())
    changes = Changes()
    Normalizer(Normalization(letters="usual"), [FARSI_YEH * 2, YEH])(YEH, changes)
    assert f"'\\u064a' → '{FARSI_YEH}' 1×" in next(changes.lines())


YEH, FARSI_YEH, MAKSURA, TATWEEL = "\u064a", "\u06cc", "\u0649", "\u0640"


@pytest.mark.parametrize(
    ("texts", "text", "expected"),
    [
        ([FARSI_YEH * 2], f"{YEH}{MAKSURA} \u0643", f"{FARSI_YEH * 2} \u0643"),
        ([YEH * 3, FARSI_YEH, MAKSURA], f"{FARSI_YEH}{MAKSURA}", YEH + MAKSURA),
        ([YEH, MAKSURA], YEH + MAKSURA, YEH + MAKSURA),  # Arabic has both
        ([], f"ه{TATWEEL}ذا", "هذا"),
        (["ș ș"], "ş", "ș"),
        (["แม่"], "เเม่", "แม่"),
        (["आम आम"], "अाम", "आम"),
        (["1٢ ۲۲۲"], "٢", "۲"),
        (["yes It's"], "no", "no"),
    ],
)
def test_letters_that_look_alike(texts: list[str], text: str, expected: str) -> None:
    usual = Normalizer(Normalization(letters="usual"), [*texts, text])
    assert usual(text) == expected
    assert Normalizer(PLAIN, [*texts, text])(text) == text  # the control


NUMBERS = [
    ("en", "23 dogs, 1,234 cats; 3.5 or 0.25", "twenty three dogs, one thousand two hundred and "
     "thirty four cats; three point five or zero point two five"),
    ("en", "the 3rd and 21ST", "the third and twenty first"),
    ("en", "in 1984 007 10:30 B2B 3/4 -5 1.000 555 1234 12-13 x² 99999999999999999", None),
    ("it", "nel 1984 e 1.234 o 3,5", "nel millenovecentottantaquattro e milleduecentotrentaquattro "
     "o tre virgola cinque"),
    ("de", "23 Hunde", "dreiundzwanzig Hunde"),
]  # fmt: skip


@pytest.mark.parametrize(("language", "text", "expected"), NUMBERS)
def test_numbers(language: str, text: str, expected: str | None) -> None:
    if find_spec("num2words") is None:
        skip("num2words is missing")
    assert Normalizer(Normalization(numbers=language))(text) == (expected or text)


def test_an_unknown_language() -> None:
    if find_spec("num2words") is None:
        skip("num2words is missing")
    with pytest.raises(UserError, match=r"--numbers: the language must be one of am, .* got 'xx'"):
        Normalizer(Normalization(numbers="xx"))


def test_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "num2words", None)
    with pytest.raises(UserError, match=re.escape("num2words not installed: pip install")):
        Normalizer(Normalization(numbers="en"))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 9999,
        "*" * 9999,
        "1," * 9999,
        "&a" * 9999,
        "'" * 9999,
        "_a " * 9999,
        "a" * 20000,
        "a." * 9999,
        "a-" * 9999,
        "a@" * 9999,
        "Ã¼" * 9999,
    ],
)
def test_hostile_texts_have_a_bound_on_time(text: str) -> None:
    start = time.process_time()
    Normalizer(BARE)(text)
    assert time.process_time() - start < 5
