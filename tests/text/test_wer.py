"""Error rates: counts, edges, and agreement with a plain edit distance."""

import random

import pytest

from asrkit.text import ErrorRate, cer, wer


def distance(a: list[str], b: list[str]) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (x != y))
    return row[-1]


def test_counts() -> None:
    assert wer(["a b c d"], ["a x d e"]) == ErrorRate(2, 0, 1, 4) or wer(
        ["a b c d"], ["a x d e"]
    ) == ErrorRate(3, 0, 0, 4)
    assert wer(["a b", "c"], ["a", "c c"]) == ErrorRate(0, 1, 1, 3)
    assert cer(["abc"], ["axcd"]) == ErrorRate(1, 0, 1, 3)
    assert wer(["a b"], ["a b"]).rate == 0.0


def test_empty_references_and_hypotheses() -> None:
    assert wer([""], ["a b"]) == ErrorRate(0, 0, 2, 0)
    assert wer(["a b"], [""]) == ErrorRate(0, 2, 0, 2)
    assert wer([], []) == ErrorRate(0, 0, 0, 0)
    assert wer(["", "a"], ["b", "a"]) == ErrorRate(0, 0, 1, 1)
    assert wer(["", ""], ["", ""]).rate == 0.0
    with pytest.raises(ValueError, match="2 references but 1"):
        wer(["a", "b"], ["a"])


def test_against_an_edit_distance() -> None:
    draw = random.Random(0)
    texts = [
        [" ".join(draw.choices("abcd", k=draw.randrange(1, 8))) for _ in range(50)] for _ in "rh"
    ]
    expected = sum(distance(r.split(), h.split()) for r, h in zip(*texts, strict=True))
    assert wer(*texts).errors == expected
