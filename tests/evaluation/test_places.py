"""Errors by place against cases worked out by hand."""

import pytest

from asrkit.evaluation import Outcome
from asrkit.evaluation.outcomes import Alignment
from asrkit.evaluation.places import PlaceErrors, errors_by_word, places, places_of, places_table
from asrkit.model import FULL_CONTEXT
from asrkit.runtime import Result, Word
from asrkit.search import NOTHING

WORDS = (Word("a", 0.0, 0.08, 1.0), Word("b", 0.12, 0.24, 1.0), Word("c", 0.24, 0.32, 1.0))


def outcome(text: str, words: tuple[Word, ...] = WORDS) -> Outcome:
    result = Result(text=text, words=(), is_final=True)
    return Outcome("u", 1.0, "a b c", result, 40, alignment=Alignment(NOTHING, words))


def test_inserted_words_count_with_the_next_word() -> None:
    assert errors_by_word(outcome("a b c")) == [0, 0, 0]
    assert errors_by_word(outcome("x a c")) == [1, 1, 0]  # inserted before a, b left out
    assert errors_by_word(outcome("a b d e f")) in ([0, 0, 3], [0, 2, 1])


def test_a_word_has_a_place_of_each_sort() -> None:
    assert places_of(3, 5, 0, 3, 4) == [
        "ends in the chunk's second quarter", "parted by a boundary", "first of its utterance",
    ]  # fmt: skip
    assert places_of(4, 7, 2, 3, 4) == [
        "ends in the chunk's last quarter", "within one chunk", "last of its utterance",
    ]  # fmt: skip


def test_errors_at_each_place_are_as_worked_out() -> None:
    """Frames 0-1, 3-5 and 6-7 in chunks of 4: only b is parted, and only in chunks it is wrong."""
    each = [{"160 ms": outcome("a x c"), "full": outcome("a b d")}]
    found = {place.name: place for place in places(each, "160 ms", "full", 4)}
    assert found["parted by a boundary"] == PlaceErrors("parted by a boundary", 1, 1, 0)
    assert found["within one chunk"] == PlaceErrors("within one chunk", 2, 0, 1)
    assert found["ends in the chunk's last quarter"].words == 1
    assert found["ends in the chunk's third quarter"] == PlaceErrors(
        "ends in the chunk's third quarter", 0, 0, 0
    )
    parted = next(p for p in places(each, "160 ms", "full", 8) if p.name == "parted by a boundary")
    assert parted.words == 0  # a control: no boundary parts b in chunks of 8
    table = places_table("160 ms", "word", places(each, "160 ms", "full", 4)).splitlines()
    assert table[6].split() == ["parted", "by", "a", "boundary", "1", "1", "100.0", "%", "0", "0.0",
                                "%"]  # fmt: skip


def test_what_is_not_aligned_has_no_place() -> None:
    each = [{"160 ms": outcome("a x c", WORDS[:2]), "full": outcome("a b c")}]
    assert all(place.words == 0 for place in places(each, "160 ms", "full", 4))
    with pytest.raises(ValueError, match="full context"):
        places(each, "full", "full", FULL_CONTEXT)
