"""Times of words while they are recognised, and after a text was rewritten."""

import itertools
import math
import pickle
import random
from collections.abc import Sequence

import numpy as np
import pytest

from asrkit.model import FULL
from asrkit.runtime import Word, recognizer_of, words
from asrkit.runtime.serialization import plain, read
from asrkit.runtime.words import (
    LEAD,
    RECENT,
    Clock,
    WordReader,
    in_units,
    joined,
    rewritten,
    widened,
)
from asrkit.search import GreedySearch, Hypothesis, PrefixBeamSearch
from asrkit.text import CharTokenizer, SentencePieceTokenizer, Tokenizer, WordTokenizer, decode
from tests.conftest import speech
from tests.running import talkative
from tests.search.test_prefix_beam import pieces, random_log_probs

FRAME_MS = 40
TOKENIZERS = [
    CharTokenizer(list(" abcdefg")),
    WordTokenizer(list("abcdefgh")),
    SentencePieceTokenizer.train(["yes no", "no yes", "on so"] * 3, 14),
    CharTokenizer(list(" ab5，「」。你好吗きょうー")),
    CharTokenizer(list(" กเทแ\u0e35\u0e48\u0e33\u200d\U0001f469\U0001f1e9e\u0301")),
    SentencePieceTokenizer.train(["你好 吗好你 好", "吗你好你。", "สวัสดี ครับ"] * 3, 26),
]
SEARCHES = [GreedySearch(), PrefixBeamSearch(beam=5)]


def check_times(words: Sequence[Word], heard: float, begin: float = 0.0) -> None:
    """None before the begin, after what was heard, empty, or beginning before another ends."""
    edges = list(itertools.chain(*((word.start, word.end) for word in words)))
    assert edges == sorted(edges)
    assert all(begin <= edge <= heard for edge in edges)
    assert all(word.start < word.end for word in words)
    assert all(0.0 <= word.confidence <= 1.0 for word in words)


def stream_of_results(seed: int) -> int:
    """Partial results of random frames, then the final one, all checked; how many words."""
    tokenizer = TOKENIZERS[seed % len(TOKENIZERS)]
    search = SEARCHES[seed // len(TOKENIZERS) % 2]
    log_probs = random_log_probs(seed, 60, tokenizer.vocab_size, scale=1.0 + seed % 4)
    begin = seed % 5  # frames of the stream before the segment
    state, read, frames = search.start(), WordReader(tokenizer, Clock(FRAME_MS), begin), begin
    for part in pieces(log_probs, seed):
        state = search.step(state, part)
        frames += len(part)
        now, hypothesis = Clock(FRAME_MS).seconds(frames), search.partial(state)
        partial = read(hypothesis, now)
        assert partial == WordReader(tokenizer, Clock(FRAME_MS), begin)(hypothesis, now)
        check_times(partial, now, Clock(FRAME_MS).seconds(begin))
    heard = Clock(FRAME_MS).seconds(frames) - 0.015  # the last frame may look beyond the audio
    final = read(search.best(state), heard)
    check_times(final, heard, Clock(FRAME_MS).seconds(begin))
    assert joined(final) == decode(tokenizer, search.best(state).tokens)
    return len(final)


def test_times_of_partial_words_are_monotone_and_inside_the_audio() -> None:
    assert sum(map(stream_of_results, range(200))) > 2000


class Pieces:
    """A tokenizer whose pieces begin words, go on with them, end them, or do two of that."""

    pieces = ("", " a", "b", "c ", " ", " d ")
    vocab_size = len(pieces)

    def piece(self, token: int) -> str:
        return self.pieces[token]


@pytest.mark.parametrize("recent", [0, 1, 4, RECENT])
@pytest.mark.parametrize("tokenizer", [*TOKENIZERS, Pieces()])
def test_words_of_changing_hypotheses_equal_those_read_anew(
    tokenizer: Tokenizer, recent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hypotheses that grow, shrink, and come back to what they were: no word is lost or doubled."""
    monkeypatch.setattr(words, "RECENT", recent)
    draw, read, tokens = random.Random(0), WordReader(tokenizer, Clock(FRAME_MS)), [1]
    said: list[list[int]] = [tokens]
    for _ in range(500):
        cut = draw.choice([0, 0, 0, 1, 3, 9, draw.randrange(len(tokens) + 1)])
        tokens = draw.choice([tokens[: max(0, len(tokens) - cut)], draw.choice(said[-5:])])
        tokens = [*tokens, *draw.choices(range(1, tokenizer.vocab_size), k=draw.randrange(6))]
        said.append(tokens)
        frames = range(len(tokens))
        ends = tuple(i + 1 for i in frames)
        hypothesis = Hypothesis(tuple(tokens), tuple(frames), ends, (1.0,) * len(tokens))
        whole = WordReader(tokenizer, Clock(FRAME_MS)).read(hypothesis)
        assert read(hypothesis) == widened(whole, 0.0, math.inf)
        assert joined(whole) == decode(tokenizer, tokens)
    assert max(map(len, said)) > 2 * RECENT


@pytest.mark.parametrize("name", ["before", "after", "over"])
def test_control_words_that_reach_too_far_are_noticed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tampered(words: list[Word], before: float, heard: float) -> list[Word]:
        lead, trail = {"before": (0.2, 0.0), "after": (0.0, 0.2), "over": (0.0, 0.0)}[name]
        return [w._replace(start=w.start - lead, end=w.end + trail) for w in words]

    monkeypatch.setattr(words, "widened", tampered)
    with pytest.raises(AssertionError):
        list(map(stream_of_results, range(200)))


@pytest.mark.parametrize("rate", [8000, 11_025, 16_000, 44_100, 48_000])
def test_the_last_word_ends_with_the_audio(rate: int) -> None:
    """Also after resampling, which rounds the number of samples up."""
    samples = np.tile(speech(2.0), 12)[: round(3.8 * rate)]
    found = recognizer_of(talkative(0.0), FULL).transcribe(samples, rate)
    assert found.words[-1].end == 3.8


def test_labels_of_a_script_without_spaces_have_their_times() -> None:
    """Each character of Chinese is a word with its own time, and what belongs to it is in it."""
    text = "你好，世界「a5 你"
    begins = (0, 250, 252, 500, 503, 600, 610, 612, 613, 700)
    tokenizer = CharTokenizer(sorted({*text}))
    hypothesis = Hypothesis(
        tuple(tokenizer.encode(text)), begins, tuple(b + 1 for b in begins), (0.9,) * len(begins)
    )
    found = WordReader(tokenizer, Clock(FRAME_MS))(hypothesis, 30.0)
    assert joined(found) == text
    assert [word.text for word in found] == ["你", "好，", "世", "界", "「a5", "你"]
    assert [word.spaced for word in found] == [True, False, False, False, False, True]
    starts = [0.0, 10.0 - LEAD, 20.0 - LEAD, 20.12 - LEAD, 24.0 - LEAD, 28.0 - LEAD]
    assert [word.start for word in found] == pytest.approx(starts)
    assert in_units(found) == found
    label = Word("你好，世", 1.0, 2.5, 0.9)  # of several units
    assert [word[:3] for word in in_units([label, Word("one", 3.0, 4.0, 0.9)])] == [
        ("你", 1.0, 1.5), ("好，", 1.5, 2.0), ("世", 2.0, 2.5), ("one", 3.0, 4.0),
    ]  # fmt: skip


@pytest.mark.parametrize("spaced", [True, False])
def test_a_saved_word_keeps_whether_a_space_is_before_it(spaced: bool) -> None:
    word = Word("yes", 0.0, 1.0, 0.5).with_space(spaced)
    again = read(Word, plain(word, {}), {})
    assert (again, again.spaced) == (word, spaced)
    assert pickle.loads(pickle.dumps(word)).spaced == spaced
    assert word._replace(text="no").spaced == spaced
    for wrong in ([*word[:3]], [*word, 1], [*word, "attached", "attached"]):
        with pytest.raises(ValueError):  # noqa: PT011
            read(Word, wrong, {})


def test_words_have_the_times_of_their_tokens() -> None:
    tokenizer = CharTokenizer(list(" ab"))
    hypothesis = Hypothesis(
        (2, 3, 1, 3, 1), (0, 2, 3, 10, 12), (1, 3, 4, 12, 13), (0.9, 0.8, 0.5, 0.7, 0.6)
    )
    words = WordReader(tokenizer, Clock(40))(hypothesis)
    assert [word[:3] for word in words] == [("ab", 0.0, 0.16), ("b", 0.34, 0.52)]
    assert [word.confidence for word in words] == pytest.approx([0.9 * 0.8, 0.7])
    late = WordReader(tokenizer, Clock(40), start=25)(hypothesis)
    assert [(word.start, word.end) for word in late] == [(1.0, 1.16), (1.34, 1.52)]
    led = WordReader(tokenizer, Clock(40, 70))(hypothesis)  # whose frame 0 begins at -70 ms
    assert [(word.start, word.end) for word in led] == [(0.0, 0.09), (0.27, 0.45)]


def spoken_words(text: str) -> list[Word]:
    """A word a second, each less sure than the one before."""
    return [Word(w, i, i + 0.5, 1.0 - i / 10) for i, w in enumerate(text.split())]


CALL = spoken_words("call four four seven at noon")


@pytest.mark.parametrize(
    ("spoken", "text", "expected"),
    [
        (CALL, "call four four seven at noon", CALL),
        (CALL, "call 447 at noon", [CALL[0], Word("447", 1, 3.5, 0.7), *CALL[4:]]),
        (CALL, "Call four four seven at Noon",
         [CALL[0]._replace(text="Call"), *CALL[1:5], CALL[5]._replace(text="Noon")]),
        (spoken_words("gonna go"), "going to go",
         [Word("going", 0, 0.25, 1.0), Word("to", 0.25, 0.5, 1.0), *spoken_words("gonna go")[1:]]),
        (spoken_words("well yes"), "yes", spoken_words("well yes")[1:]),
        (spoken_words("yes"), "« yes »",
         [Word("«", 0, 0, 1.0), Word("yes", 0, 0.5, 1.0), Word("»", 0.5, 0.5, 1.0)]),
        (spoken_words("yes"), "", []),
    ],
)  # fmt: skip
def test_times_of_rewritten_words(spoken: list[Word], text: str, expected: list[Word]) -> None:
    assert rewritten(spoken, text) == expected


def test_times_of_rewritten_characters() -> None:
    """A script without spaces: what stays has its time, what is added stands beside it."""
    spoken = [Word(c, i, i + 0.5, 0.9).with_space(not i) for i, c in enumerate("今天好吗")]
    assert rewritten(spoken, "今天好吗") == spoken
    marked = rewritten(spoken, "今天好吗？")
    assert marked == [*spoken[:3], spoken[3]._replace(text="吗？")]
    other = rewritten(spoken, "今天 很好吗")
    assert joined(other) == "今天 很好吗"
    assert [word.start for word in other] == [0, 1, 1.5, 2, 3]
    label = [Word("今天", 0.0, 1.0, 0.9), Word("好", 1.0, 2.0, 0.9).with_space(False)]
    assert [word[:3] for word in rewritten(label, "今天坏")] == [
        ("今", 0.0, 0.5), ("天", 0.5, 1.0), ("坏", 1.0, 2.0)
    ]  # fmt: skip
