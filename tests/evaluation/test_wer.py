"""Error rates: counts, edges, and agreement with jiwer."""

import math
import random

import jiwer
import numpy as np
import pytest

from asrkit.evaluation.wer import (
    ErrorRate,
    agreeing,
    bootstrap,
    cer,
    paired,
    total,
    wer,
    word_alignment,
)


def test_edits_of_known_texts_are_as_worked_out() -> None:
    edits = (ErrorRate(2, 0, 1, 4), ErrorRate(3, 0, 0, 4))  # either alignment has three
    assert wer(["a b c d"], ["a x d e"]) in edits
    assert cer(["abc"], ["axcd"]) == ErrorRate(1, 0, 1, 3, 3)
    assert wer(["a b"], ["a b"]).rate == 0.0


@pytest.mark.parametrize(
    ("references", "hypotheses", "name", "rate"),
    [
        (["one two", "three"], ["one", "three"], "WER", ErrorRate(0, 1, 0, 3, 0)),
        (["서울에서 왔어요"], ["서울에서 와요"], "WER", ErrorRate(1, 0, 0, 2, 0)),
        (["你好世界", "再見"], ["你号世界", "再見"], "CER", ErrorRate(1, 0, 0, 6, 6)),
        (["你好 世界"], ["你好世界"], "CER", ErrorRate(0, 0, 0, 4, 4)),  # the space is no unit
        (["ที่นี่"], ["ที่"], "CER", ErrorRate(0, 1, 0, 2, 2)),
        (["ក្រុម", "ပန်း"], ["ក្រុម", "ပန်း"], "CER", ErrorRate(0, 0, 0, 4, 4)),
        (["我 want 苹果"], ["我 wand 苹果"], "MER", ErrorRate(1, 0, 0, 4, 3)),
        (["one", "好"], ["one", "号"], "MER", ErrorRate(1, 0, 0, 2, 1)),
        ([""], ["好"], "WER", ErrorRate(0, 0, 1, 0, 0)),
        (["a b", "c"], ["a", "c c"], "WER", ErrorRate(0, 1, 1, 3)),
        (["a b"], [""], "WER", ErrorRate(0, 2, 0, 2)),
        ([], [], "WER", ErrorRate(0, 0, 0, 0)),
        (["", "a"], ["b", "a"], "WER", ErrorRate(0, 0, 1, 1)),
    ],
)
def test_a_rate_counts_units_and_its_name_says_which(
    references: list[str], hypotheses: list[str], name: str, rate: ErrorRate
) -> None:
    assert wer(references, hypotheses) == rate
    assert rate.name == name
    singly = [wer([r], [h]) for r, h in zip(references, hypotheses, strict=True)]
    assert total(singly) == rate


def test_empty_references_have_insertions_and_no_rate() -> None:
    found = wer(["", ""], ["", "a"])
    assert (found.rate, found.percent) == (None, "no words")
    assert str(found) == "no reference words (1 ins)"
    assert wer(["a", ""], ["a", ""]).percent == "0.00 %"  # a control
    with pytest.raises(ValueError, match="2 references but 1"):
        wer(["a", "b"], ["a"])


def test_error_rates_equal_jiwers() -> None:
    draw = random.Random(0)
    texts = [
        [" ".join(draw.choices("abcd", k=draw.randrange(1, 8))) for _ in range(50)] for _ in "rh"
    ]
    expected = jiwer.process_words(*texts)
    kinds = (expected.substitutions, expected.deletions, expected.insertions)
    assert wer(*texts).errors == sum(kinds)


def rates(errors: list[int], words: list[int]) -> list[ErrorRate]:
    return [ErrorRate(e, 0, 0, w) for e, w in zip(errors, words, strict=True)]


def test_an_interval_where_the_distribution_is_known() -> None:
    """Of 400 single words, 80 wrong: binomial, 20 % ± 1.96 sqrt(0.2 · 0.8 / 400)."""
    low, high = bootstrap(rates([1] * 80 + [0] * 320, [1] * 400))
    half = 196 * math.sqrt(0.2 * 0.8 / 400)
    assert low == pytest.approx(20 - half, abs=0.6)
    assert high == pytest.approx(20 + half, abs=0.6)
    assert bootstrap(rates([0, 1], [1, 1])) == (0.0, 100.0)  # a quarter of the samples each


def test_an_interval_of_equal_utterances_is_a_point() -> None:
    assert bootstrap(rates([1] * 30, [4] * 30)) == (25.0, 25.0)
    assert bootstrap(rates([0], [0])) is None
    some = rates([1, 2, 0, 5], [4, 4, 4, 9])
    assert bootstrap(some) == bootstrap(some)


def test_control_errors_that_come_together_make_it_wider() -> None:
    """Drawing words and not utterances would miss this: the rate is the same, 20 %."""
    together = bootstrap(rates([10] * 20 + [0] * 80, [10] * 100))
    apart = bootstrap(rates([2] * 100, [10] * 100))
    assert apart == (20.0, 20.0)
    assert together.high - together.low > 12


def test_alignment_has_each_word_of_both_once_and_in_order() -> None:
    pairs = [(None, 0), (0, 1), (1, None), (2, 2), (3, 3), (4, 4)]
    assert word_alignment(list("abcde"), list("xacde")) == pairs
    assert word_alignment([], ["a"]) == [(None, 0)]
    assert word_alignment(["a"], []) == [(0, None)]
    assert word_alignment([], []) == []


def test_agreeing_tokens_are_pairs_of_equal_ones() -> None:
    assert agreeing((1, 2, 3, 4), (1, 3, 4)) == [(0, 0), (2, 1), (3, 2)]
    assert agreeing((1, 2), ()) == []
    assert agreeing((5,), (6,)) == []


def test_the_interval_of_a_difference_holds_zero_unless_there_is_one() -> None:
    draw = np.random.default_rng(0)
    units = np.full(100, 10)
    base, alike, better = (draw.poisson(mean, (3, 100)) for mean in (2.0, 2.0, 1.0))
    low, high = paired(base, alike, units).interval
    assert low < 0.0 < high
    found = paired(base, better, units)
    assert -75.0 < found.percent_interval.low < -50.0 < found.percent_interval.high < -30.0
    assert found.points == pytest.approx((better.mean() - base.mean()) * 10)
    assert found.interval.low < found.points < found.interval.high < 0.0
    assert str(found).endswith("fewer errors")
    assert str(paired(better, base, units)).endswith("more errors")


def test_utterances_are_paired() -> None:
    """One error less in each of ten utterances is plain, although the utterances differ much."""
    draw, units = np.random.default_rng(0), np.full(40, 10)
    base = draw.integers(1, 9, (1, 40))
    other = base - (np.arange(40) % 4 == 0)
    assert paired(base, other, units).interval.high < 0.0
    shuffled = other[:, draw.permutation(40)]  # the control: the same rates, no pairs
    assert paired(base, shuffled, units).interval.high > 0.0
    assert paired(base, base, units).interval == (0.0, 0.0)


def test_few_seeds_widen_the_interval() -> None:
    units, error = np.full(50, 10), np.ones((1, 50), int)
    seeds = np.concatenate([error, 2 * error])
    assert paired(error, seeds, units).interval == (0.0, 10.0)  # one seed's or the other's
    assert paired(0 * error, 0 * error, units).percent_interval == (0.0, 0.0)  # without errors
