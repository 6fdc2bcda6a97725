"""Results of a long stream: one costs what is new in it, none changes later; n-best lists."""

import copy
import math
import pickle
import random
import statistics
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from asrkit.runtime import Endpointer, Result, recognizer_of, results, words
from asrkit.runtime.results import candidates
from asrkit.runtime.transcript import DecodingOptions, Transcript
from asrkit.runtime.words import Clock
from asrkit.search import GreedySearch, Hypothesis, PrefixBeamSearch, Ranked, Search
from asrkit.text import CharTokenizer
from tests.conftest import speech
from tests.runtime.test_endpoint import WORDS, posteriors
from tests.runtime.test_timed_words import TOKENIZERS
from tests.search.test_prefix_beam import random_log_probs
from tests.test_model_file import a_file

CHUNK = 16


def transcript_of(search: Search, endpointer: Endpointer | None) -> Transcript:
    return Transcript(DecodingOptions(WORDS, search, endpointer), Clock(40))


def costs(take: Callable[[Result], object]) -> tuple[float, float]:
    """Bytes that a chunk allocates, whatever it copies, early in a stream of 8 minutes and late;
    `take`: what is done with its result."""
    draw, found = random.Random(0), []
    log_probs = posteriors(draw, 5)[: 12 * CHUNK]
    transcript = transcript_of(GreedySearch(), Endpointer(400))
    tracemalloc.start()
    try:
        for i in range(750):
            start = i % 12 * CHUNK
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            transcript.append(log_probs[start : start + CHUNK])
            take(transcript.partial())
            found.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    assert sum(len(segment.words) for segment in transcript.segments) > 900
    return statistics.median(found[60:240]), statistics.median(found[-180:])


def test_a_chunk_late_in_a_stream_costs_what_an_early_one_does() -> None:
    early, late = costs(lambda result: result.open_text)
    assert late < 1.1 * early
    early, late = costs(lambda result: (result.words, result.segments))  # the control
    assert late > 2 * early


@pytest.mark.parametrize("search", [GreedySearch(), PrefixBeamSearch(beam=4)])
@pytest.mark.parametrize("endpointer", [None, Endpointer(400)])
def test_a_result_stays_as_it_was(
    search: Search, endpointer: Endpointer | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read at once or when the stream has ended, also where the search changes its mind."""
    monkeypatch.setattr(words, "RECENT", 1)
    draw = random.Random(3)
    for _ in range(20):
        log_probs = posteriors(draw, 5)
        transcript, kept, read = transcript_of(search, endpointer), [], []
        for part in np.split(log_probs, range(5, len(log_probs), 5)):
            transcript.append(part)
            kept.append(transcript.partial())
            read.append(repr(transcript.partial()))
        kept.append(transcript.finish(8.0))
        same = [repr(each) for each in kept[:-1]] == read
        assert same  # alone: pytest takes seconds to describe how such lists differ
        assert kept[-1].words == sum((each.words for each in kept[-1].segments), ())


def test_control_a_list_that_is_changed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results.Grown, "read", lambda self: tuple(self.items))
    with pytest.raises(AssertionError):
        test_a_result_stays_as_it_was(GreedySearch(), Endpointer(400), monkeypatch)


def test_a_result_is_a_value() -> None:
    transcript = transcript_of(GreedySearch(), Endpointer(400))
    transcript.append(posteriors(random.Random(1), 5))
    shared = transcript.partial()
    assert shared.open_text
    assert shared.segments
    made = Result(shared.text, shared.words, shared.is_final, shared.segments)
    for same in (made, copy.deepcopy(shared), pickle.loads(pickle.dumps(shared))):
        assert same == shared
        assert hash(same) == hash(shared)
        assert (same.open_text, same.nbest) == (shared.open_text, shared.nbest)
    assert Result("other", shared.words, shared.is_final, shared.segments) != shared
    assert repr(shared).startswith(f"Result(text={shared.text!r}, words=(Word(")


@pytest.mark.parametrize("seed", range(30))
def test_nbest_texts_differ_and_are_sorted_by_score(seed: int) -> None:
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


def test_only_a_final_result_of_a_beam_has_a_list() -> None:
    file = a_file(CharTokenizer(list("abcdefghij ")))
    samples = speech(2.0)
    assert recognizer_of(file).transcribe(samples).nbest == ()
    beam = recognizer_of(file, search=file.config.search.model_copy(update={"kind": "prefix_beam"}))
    session = beam.start()
    assert session.accept(samples).nbest == ()
    final = session.finish()
    assert len(final.nbest) == 10
    assert final.nbest[0].text == final.text
