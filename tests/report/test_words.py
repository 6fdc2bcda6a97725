"""Bootstrap intervals, aligned words, bins and counts, with known answers."""

import random

from asrkit.evaluation.wer import wer
from asrkit.report.words import (
    Pair,
    Recognized,
    by_duration,
    confusions,
    grouped,
    word_pairs,
)


def test_word_pairs() -> None:
    assert word_pairs("a b c d", "a x c d e") == [
        Pair("a", "a"), Pair("b", "x"), Pair("c", "c"), Pair("d", "d"), Pair(None, "e"),
    ]  # fmt: skip
    assert word_pairs("one  two", " one two ") == [Pair("one", "one"), Pair("two", "two")]
    assert word_pairs("a b", "") == [Pair("a", None), Pair("b", None)]
    kinds = [
        pair.kind for pair in (Pair("a", "a"), Pair("a", "b"), Pair("a", None), Pair(None, "b"))
    ]
    assert kinds == ["equal", "substitution", "deletion", "insertion"]


def test_word_pairs_are_both_texts_and_as_many_errors_as_the_rate_counts() -> None:
    draw = random.Random(0)
    for _ in range(100):
        reference, hypothesis = (" ".join(draw.choices("abcd", k=draw.randrange(8))) for _ in "sh")
        pairs = word_pairs(reference, hypothesis)
        assert " ".join(p.reference for p in pairs if p.reference is not None) == reference
        assert " ".join(p.hypothesis for p in pairs if p.hypothesis is not None) == hypothesis
        one = Recognized("u", None, 1.0, pairs)
        assert one.counts.errors == wer([reference], [hypothesis]).errors
        assert one.counts.reference_units == len(reference.split())


def some() -> list[Recognized]:
    return [
        Recognized("1", "x", 1.0, word_pairs("a b", "a b")),
        Recognized("2", "y", 7.9, word_pairs("a b", "a c")),
        Recognized("3", "x", 0.4, word_pairs("a", "")),
        Recognized("4", None, 99.0, word_pairs("b", "c d")),
        Recognized("5", "y", 8.0, word_pairs("", "d")),
    ]


def test_bins_hold_their_lower_bound() -> None:
    found = [
        (each.name, each.utterances, each.seconds, each.counts.reference_units, each.counts.errors)
        for each in by_duration(some())
    ]
    assert found == [
        ("0 to 1 s", 1, 0.4, 1, 1),
        ("1 to 2 s", 1, 1.0, 2, 0),
        ("5 to 8 s", 1, 7.9, 2, 1),
        ("8 to 12 s", 1, 8.0, 0, 1),
        ("30 s and more", 1, 99.0, 1, 2),
    ]


def test_speakers() -> None:
    x, y = grouped(some(), lambda each: each.speaker)  # without the one that has none
    assert (x.name, x.utterances, x.counts.reference_units, x.counts.errors) == ("x", 2, 3, 1)
    assert (y.name, y.utterances, y.seconds, y.counts.rate) == ("y", 2, 15.9, 100.0)


def test_confusions() -> None:
    found = confusions(some())
    assert found["deletion"] == {Pair("a", None): 1}
    assert found["substitution"][Pair("b", "c")] >= 1
    assert found["substitution"].total() == 2
    assert found["insertion"].total() == 2
