"""Hotwords: what they add to a finished text is what the phrases in it are worth, nothing else."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asrkit.build import build_hotwords, pieces_of
from asrkit.errors import UserError
from asrkit.lm.hotwords import GRID, Hotwords, read_hotwords, weighed
from asrkit.text import CharTokenizer
from tests.lm.phrases import worth
from tests.lm.test_fusion import added, tokenizers

WORDS = ["A", "THE", "CAT", "MAT", "SAT", "AT", "CA", "T"]
PHRASES = [*WORDS, "THE CAT", "CAT SAT", "THE CAT SAT", "CAT CAT", "A MAT", "A", "SAT SAT SAT"]
KINDS = ["characters", "words", "unigram", "bpe"]
ALL = tokenizers()


def some_bonuses(draw: random.Random, phrases: list[str]) -> dict[str, float]:
    """A few phrases with bonuses that are multiples of the grid."""
    chosen = draw.sample(phrases, draw.randint(1, min(6, len(phrases))))
    return {phrase: round(draw.uniform(0, 9) * GRID) / GRID for phrase in chosen}


def some_tokens(draw: random.Random, kind: str) -> list[int]:
    """What a model may write: a text's tokens, or any."""
    tokenizer = ALL[kind]
    if draw.random() < 0.3:
        return draw.choices(range(1, tokenizer.vocab_size), k=draw.randint(0, 12))
    words = ["A", "THE", "CAT", "MAT", "SAT"] if kind == "words" else WORDS
    return tokenizer.encode(" ".join(draw.choices(words, k=draw.randint(0, 6))))


def wrong(kind: str, seeds: range, make: type[Hotwords] = Hotwords) -> int:
    """How many of some random texts are worth something else than by definition."""
    count = 0
    for seed in seeds:
        draw = random.Random(seed)
        bonuses, pieces = some_bonuses(draw, PHRASES), pieces_of(ALL[kind])
        tokens = some_tokens(draw, kind)
        words = "".join(pieces[token] for token in tokens).split()
        count += added(make(bonuses, pieces), tokens) != worth(words, bonuses)
    return count


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_is_worth_its_phrases_exactly(kind: str) -> None:
    """No advance is left, to the last bit, whatever breaks, overlaps or ends."""
    assert wrong(kind, range(500)) == 0


class Keeping(Hotwords):
    """Gives nothing back at the end."""

    def finish(self, state: int) -> float:
        return self.complete[state]


class Forgetting(Hotwords):
    """Starts from nothing where a match breaks."""

    def link(self) -> None:
        pass


class Inside(Hotwords):
    """Phrases count inside words, too."""

    def step(self, state: int, token: int) -> tuple[int, float]:
        return super().step(state or self.start(), token)


@pytest.mark.parametrize("make", [Keeping, Forgetting, Inside])
def test_control_the_definition_notices(make: type[Hotwords]) -> None:
    assert wrong("characters", range(100), make) > 5


def test_phrases_without_spaces_count_anywhere() -> None:
    """As in Chinese; overlaps and other breaks as ever."""
    pieces = ["", *"我在北京上海"]
    bonuses = {"北京": 4.0, "京上": 2.0, "海": 1.0}
    hotwords = Hotwords(bonuses, pieces)
    for seed in range(200):
        draw = random.Random(seed)
        tokens = draw.choices(range(1, len(pieces)), k=draw.randint(0, 9))
        text = "".join(pieces[token] for token in tokens)
        assert added(hotwords, tokens) == sum(text.count(p) * b for p, b in bonuses.items())


def test_hotwords_that_add_up_too_high_are_refused() -> None:
    nested = {" ".join(["A"] * size): 20.0 * size for size in range(1, 12)}
    with pytest.raises(ValueError, match=r"weights sum to \d+ at one token, more than 100; use"):
        Hotwords(nested, ["", " ", "A"])


def test_file_of_hotwords_has_a_phrase_and_weight_a_line(tmp_path: Path) -> None:
    path = tmp_path / "hot.txt"
    path.write_bytes("\ufeffNew York\r\n# a comment\n\n  Zürich\t4.5 \nC# minor\t0\n".encode())
    assert read_hotwords(path, 2.0) == {"New York": 2.0, "Zürich": 4.5, "C# minor": 0.0}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a\nb\tmuch\n", r"hot.txt:2: expected a phrase, .* a tab and a number, got 'b\\tmuch'"),
        (b"a\t1\t2\n", "hot.txt:1: expected a phrase,"),
        (b"# \xe4\n", "hot.txt:1: not UTF-8"),
        (None, "the file of hotwords .*hot.txt does not exist"),
    ],
)
def test_file_that_is_not_a_list_of_phrases_is_refused_by_line(
    data: bytes | None, message: str, tmp_path: Path
) -> None:
    if data is not None:
        (tmp_path / "hot.txt").write_bytes(data)
    with pytest.raises(UserError, match=message):
        read_hotwords(tmp_path / "hot.txt")
    with pytest.raises(UserError, match=r"the file of hotwords .* is a folder"):
        read_hotwords(tmp_path)  # as a pipe is not


@pytest.mark.parametrize(
    ("hotwords", "message"),
    [
        *(
            ({"a": weight}, "hotword 'a': the weight must be between 0 and 20, got")
            for weight in (-1.0, 20.5, float("nan"), "3", None, True)
        ),
        *(
            (each, r"hotwords must be a list of phrases, .* got")
            for each in (5, True, b"a", "help")
        ),
        *((each, "each hotword must be a string, got") for each in (["a", 5], [["a"]], {7: 1.0})),
        (["a" * 1001], "hotword 'a+…a+': it must have at most 1000 .*, got 1001$"),
    ],
)
def test_what_is_no_list_of_phrases(hotwords: Any, message: str) -> None:
    """A line of megabytes would take minutes and gigabytes."""
    assert weighed(["a" * 1000]) == {"a" * 1000: 2.0}
    assert weighed(iter(["b", "a"])) == weighed(np.array(["b", "a"])) == {"b": 2.0, "a": 2.0}
    with pytest.raises(UserError, match=f"^{message}"):
        weighed(hotwords)


@pytest.mark.parametrize(
    ("phrase", "bonus"), [("ab cd", 4.0), ("你好", 4.0), ("ที่นี่ ab", 6.0), ("ab", 2.0)]
)
def test_a_weight_is_that_of_each_unit(phrase: str, bonus: float) -> None:
    fusion = build_hotwords([phrase], CharTokenizer(sorted({*phrase})), str)
    assert fusion.bonuses == {phrase: bonus}
