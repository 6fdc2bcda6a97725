"""Times of words while they come, and n-best lists with their scores."""

import itertools
import math
import pickle
import random
from collections.abc import Sequence

import numpy as np
import pytest

from asrkit.runtime import Word, recognizer_of, results
from asrkit.runtime.results import (
    LEAD,
    RECENT,
    TRAIL,
    WordReader,
    candidates,
    joined,
    seconds,
    widened,
)
from asrkit.runtime.serialization import plain, read
from asrkit.runtime.word import whole
from asrkit.search import GreedySearch, Hypothesis, PrefixBeamSearch, Ranked
from asrkit.text import CharTokenizer, SentencePieceTokenizer, Tokenizer, WordTokenizer, decode
from tests.conftest import speech
from tests.search.test_prefix_beam import pieces, random_log_probs
from tests.test_model_file import a_file

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
    state, read, frames = search.start(), WordReader(tokenizer, FRAME_MS, begin), begin
    for part in pieces(log_probs, seed):
        state = search.step(state, part)
        frames += len(part)
        now, hypothesis = seconds(frames, FRAME_MS), search.partial(state)
        partial = read(hypothesis, now)
        assert partial == WordReader(tokenizer, FRAME_MS, begin)(hypothesis, now)
        check_times(partial, now, seconds(begin, FRAME_MS))
    heard = seconds(frames, FRAME_MS) - 0.015  # the last frame may look beyond the audio
    final = read(search.best(state), heard)
    check_times(final, heard, seconds(begin, FRAME_MS))
    assert joined(final) == decode(tokenizer, search.best(state).tokens)
    return len(final)


def test_times_are_monotone_and_inside() -> None:
    assert sum(map(stream_of_results, range(200))) > 2000


@pytest.mark.parametrize("recent", [0, 1, 4, RECENT])
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_a_search_may_think_better_of_all_it_said(
    tokenizer: Tokenizer, recent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hypotheses that grow, shrink, and come back to what they were: no word is lost or doubled."""
    monkeypatch.setattr(results, "RECENT", recent)
    draw, read, tokens = random.Random(0), WordReader(tokenizer, FRAME_MS), [1]
    said: list[list[int]] = [tokens]
    for _ in range(2000):
        cut = draw.choice([0, 0, 0, 1, 3, 9, draw.randrange(len(tokens) + 1)])
        tokens = draw.choice([tokens[: max(0, len(tokens) - cut)], draw.choice(said[-5:])])
        tokens = [*tokens, *draw.choices(range(1, tokenizer.vocab_size), k=draw.randrange(6))]
        said.append(tokens)
        frames = range(len(tokens))
        ends = tuple(i + 1 for i in frames)
        hypothesis = Hypothesis(tuple(tokens), tuple(frames), ends, (1.0,) * len(tokens))
        assert read(hypothesis) == widened(
            WordReader(tokenizer, FRAME_MS).read(hypothesis), 0.0, math.inf
        )
    assert max(map(len, said)) > 2 * RECENT


def test_a_word_that_never_ends_is_not_read_from_its_start() -> None:
    class Counting(CharTokenizer):
        read = 0

        def piece(self, token: int) -> str:
            self.read += 1
            return super().piece(token)

    tokenizer = Counting(list("ab"))
    read, text = WordReader(tokenizer, FRAME_MS), ""
    for size in range(1000):
        tokens = tuple(1 + i % 2 for i in range(size))
        read(Hypothesis(tokens, tokens, tokens, (1.0,) * size))
        text = "".join(map(tokenizer.piece, tokens))
    (word,) = read(Hypothesis(tokens, tokens, tokens, (1.0,) * size))
    assert word.text == text
    own = 1000 * 999 / 2  # of this test
    assert tokenizer.read - own < 1000 * (RECENT + 5)


@pytest.mark.parametrize("name", ["before", "after", "over"])
def test_control_words_that_reach_too_far_are_noticed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tampered(words: list[Word], before: float, heard: float) -> list[Word]:
        lead, trail = {"before": (0.2, 0.0), "after": (0.0, 0.2), "over": (0.0, 0.0)}[name]
        return [w._replace(start=w.start - lead, end=w.end + trail) for w in words]

    monkeypatch.setattr(results, "widened", tampered)
    with pytest.raises(AssertionError):
        list(map(stream_of_results, range(200)))


@pytest.mark.parametrize("search", ["greedy", "prefix_beam"])
def test_a_session_hears_no_word_beyond_its_audio(search: str) -> None:
    file = a_file(CharTokenizer(list("abcdefghij ")))
    recognizer = recognizer_of(file, search=file.config.search.model_copy(update={"kind": search}))
    for num_samples in range(400, 20000, 1777):
        samples = speech(2.0)[:num_samples]
        session = recognizer.start()
        for i in range(0, num_samples, 3000):
            partial = session.accept(samples[i : i + 3000])
            check_times(partial.words, min(num_samples, i + 3000) / 16000)
        final = session.finish()
        assert final.words
        check_times(final.words, num_samples / 16000)
        check_times(recognizer.transcribe_batch([samples])[0].words, num_samples / 16000)


def test_words_are_longer_than_their_tokens() -> None:
    """But reach into no other, nor beyond the audio."""
    hypothesis = Hypothesis((1, 2, 3), (1, 10, 12), (2, 12, 14), (1.0,) * 3)
    read = WordReader(WordTokenizer(["a", "b", "c"]), FRAME_MS)
    words = read(hypothesis, 0.57)
    assert [word[1:3] for word in words] == [
        (0.0, 0.08 + TRAIL),
        (round(0.4 - LEAD, 3), 0.48),  # where c's tokens begin
        (0.48, 0.57),
    ]


@pytest.mark.parametrize("seed", range(30))
def test_nbest(seed: int) -> None:
    """Texts that differ, likeliest first; probabilities among themselves."""
    tokenizer, search = TOKENIZERS[seed % 3], PrefixBeamSearch(beam=1 + seed % 12)
    state = search.step(search.start(), random_log_probs(seed, 20, tokenizer.vocab_size))
    found = candidates(search.nbest(state), tokenizer)
    assert len({each.text for each in found}) == len(found)
    assert [each.score for each in found] == sorted((c.score for c in found), reverse=True)
    assert sum(each.probability for each in found) == pytest.approx(1.0)
    assert math.log(found[0].probability / found[-1].probability) == pytest.approx(
        found[0].score - found[-1].score
    )
    total = np.logaddexp.reduce([ranked.score for ranked in search.nbest(state)])
    assert np.logaddexp.reduce([each.score for each in found]) == pytest.approx(total)


def test_one_text_of_several_token_sequences_counts_once() -> None:
    tokenizer = CharTokenizer(list(" ab"))

    def ranked(tokens: tuple[int, ...], score: float) -> Ranked:
        return Ranked(Hypothesis(tokens, tokens, tokens, (1.0,) * len(tokens)), score)

    found = candidates(
        [ranked((3,), math.log(0.3)), ranked((2,), math.log(0.2)), ranked((2, 1), math.log(0.2))],
        tokenizer,
    )
    assert [each.text for each in found] == ["a", "b"]
    assert [math.exp(each.score) for each in found] == pytest.approx([0.4, 0.3])
    assert [each.probability for each in found] == pytest.approx([4 / 7, 3 / 7])


def test_nbest_of_results() -> None:
    """Of final results, in streams and batches alike; greedy search has none."""
    file = a_file(CharTokenizer(list("abcdefghij ")))
    samples = speech(2.0)
    greedy = recognizer_of(file)
    assert greedy.transcribe(samples).nbest == ()
    beam = recognizer_of(file, search=file.config.search.model_copy(update={"kind": "prefix_beam"}))
    session = beam.start()
    assert session.accept(samples).nbest == ()
    final = session.finish()
    assert len(final.nbest) == 10
    assert final.nbest[0].text == final.text
    (batched,) = beam.transcribe_batch([samples])
    assert [each.text for each in batched.nbest] == [each.text for each in final.nbest]
    scores = [each.score for each in final.nbest]
    assert [each.score for each in batched.nbest] == pytest.approx(scores)


def test_labels_of_a_script_without_spaces_have_their_times() -> None:
    """Each character of Chinese is a word with its own time, and what belongs to it is in it."""
    text = "你好，世界「a5 你"
    begins = (0, 250, 252, 500, 503, 600, 610, 612, 613, 700)
    tokenizer = CharTokenizer(sorted({*text}))
    hypothesis = Hypothesis(
        tuple(tokenizer.encode(text)), begins, tuple(b + 1 for b in begins), (0.9,) * len(begins)
    )
    found = WordReader(tokenizer, FRAME_MS)(hypothesis, 30.0)
    assert joined(found) == text
    assert [word.text for word in found] == ["你", "好，", "世", "界", "「a5", "你"]
    assert [word.spaced for word in found] == [True, False, False, False, False, True]
    starts = [0.0, 10.0 - LEAD, 20.0 - LEAD, 20.12 - LEAD, 24.0 - LEAD, 28.0 - LEAD]
    assert [word.start for word in found] == pytest.approx(starts)
    assert [word.text for word in whole(found)] == ["你好，世界「a5", "你"]
    assert whole(found)[0].end == found[4].end


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
