"""The second pass: which frames it takes, and that its text is what the larger context makes."""

import random

import numpy as np
import pytest
import torch

from asrkit import Batcher, Endpointer, UserError, audio, load
from asrkit.backends.pytorch import eager
from asrkit.model import FULL_CONTEXT, Context, Network
from asrkit.runtime import Recognizer, Result, long_audio
from asrkit.runtime.long_audio import Span, Spans
from asrkit.runtime.stream import FeatureQueue
from asrkit.runtime.transcript import Transcript
from asrkit.runtime.words import Clock, WordReader
from asrkit.search import GreedySearch, PrefixBeamSearch
from asrkit.text import WordTokenizer
from tests.conftest import speech
from tests.laws.test_any_configuration import assert_same
from tests.laws.test_streaming import drain, network, packets

LETTERS = WordTokenizer(list("abcdefghijk"))
RATE = 16000


def recording(seed: int, seconds: float = 1.2, parts: int = 4) -> np.ndarray:
    """Speech with pauses of 0.8 s between its parts."""
    hiss = 3e-4 * np.random.default_rng(seed).standard_normal(int(RATE * (seconds + 0.8) * parts))
    pause = np.zeros(int(0.8 * RATE), dtype=np.float32)
    each = [np.concatenate([speech(seconds, seed + i), pause]) for i in range(parts)]
    return (np.concatenate(each) + hiss).astype(np.float32)


@pytest.fixture(scope="module")
def model() -> Network:
    built = network(recording(0), Context(4, 16), vocab_size=LETTERS.vocab_size)
    with torch.no_grad():
        built.head.bias[0] += 1.0  # pauses
    return built


def recognizer_of(
    model: Network,
    endpointer: Endpointer | None = None,
    second: int = FULL_CONTEXT,
) -> Recognizer:
    return Recognizer(
        eager(model, Context(4, 16)), LETTERS, GreedySearch(), endpointer=endpointer,
        second_pass=eager(model, Context(second, 16)),
        second_search=PrefixBeamSearch(3),
    )  # fmt: skip


def full_of(model: Network, chunk_size: int = FULL_CONTEXT) -> Recognizer:
    return Recognizer(eager(model, Context(chunk_size, 16)), LETTERS, PrefixBeamSearch(3))


def pieces_of(quiet: list[bool], cuts: list[int], sizes: list[int]) -> list[Span]:
    """Of a stream whose segments end at `cuts`, frames coming in parts of `sizes`."""
    spans, found, frame = Spans(40), list[Span](), 0
    edges = sorted({*np.cumsum(sizes).tolist(), *cuts, len(quiet)})
    for edge in (edge for edge in edges if edge <= len(quiet)):
        found += spans.append(quiet[frame:edge])
        frame = edge
        found += [spans.end_segment()] if edge in cuts else []
    last = spans.finish()
    return found if last is None else [*found, last]


def test_spans_cover_the_stream_once() -> None:
    """Their texts' frames follow each other, inside what the network sees, in bounded lengths."""
    draw = random.Random(0)
    for _ in range(100):
        quiet, cuts = list[bool](), list[int]()  # minutes of runs, and ends of segments in pauses
        for _ in range(draw.randrange(1, 40)):
            quiet += [False] * draw.choice([1, 10, 100, 900]) + [True] * draw.choice([1, 15, 300])
            cuts += [len(quiet)] if draw.random() < 0.4 else []
        found = pieces_of(quiet, cuts, [draw.randrange(1, 400) for _ in range(200)])
        assert found == pieces_of(quiet, cuts, [len(quiet)])  # however many frames come at once
        assert [span.start for span in found] == [0, *(span.end for span in found)][:-1]
        assert found[-1].end == len(quiet)
        assert [span.ends for span in found].count(True) >= len(cuts)
        for span in found:
            assert span.first == max(0, span.start - 25) <= span.start < span.end <= span.last
            assert span.last - span.start <= 750  # 30 s
            # No speech lies at an edge, unless there is no pause to cut in.
            inner = quiet[max(0, span.end - 1) : span.end]
            assert span.ends or all(inner) or span.last - span.end == 25


def test_a_final_text_is_that_of_the_larger_context(model: Network) -> None:
    """In one segment: the same result as in one pass in that context, n-best and all."""
    samples = recording(3)
    for second in (FULL_CONTEXT, 16):
        expected = full_of(model, second).transcribe(samples)
        found = recognizer_of(model, second=second).transcribe(samples)
        assert_same(found, expected)
        assert found.segments[0].context == ("full" if second == FULL_CONTEXT else "640 ms")
    live = Recognizer(eager(model, Context(4, 16)), LETTERS, GreedySearch()).transcribe(samples)
    assert live.text != expected.text  # the control


def expected_words(model: Network, samples: np.ndarray, span: Span) -> list[str]:
    """What full context makes of the samples of exactly those frames."""
    hop, window = 4 * audio.HOP, audio.WINDOW - audio.HOP
    (log_probs,) = full_of(model).emissions([samples[span.first * hop : span.last * hop + window]])
    search = PrefixBeamSearch(3)
    state = search.step(search.start(), span.of(log_probs))
    return [word.text for word in WordReader(LETTERS, Clock(40))(search.best(state))]


def test_text_of_a_segment_is_that_of_its_samples_alone(
    model: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each segment's text is that of a recording of its frames alone, whatever the packets."""
    samples, spans = recording(5), list[Span]()
    honest = Spans._span

    def noted(self: Spans, size: int, seen: int, ends: bool) -> Span:
        spans.append(honest(self, size, seen, ends))
        return spans[-1]

    monkeypatch.setattr(Spans, "_span", noted)
    recognizer = recognizer_of(model, Endpointer(300))
    result = recognizer.transcribe(samples)
    texts = [" ".join(expected_words(model, samples, span)) for span in spans]
    assert [segment.text for segment in result.segments] == [text for text in texts if text]
    assert len(result.segments) > 2
    shifted = [span._replace(first=span.first + 1) for span in spans[1:]]
    others = [" ".join(expected_words(model, samples, span)) for span in shifted]
    assert others != texts[1:]  # the control


def test_long_segment_in_spans_has_bounded_memory_and_one_text(
    model: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounded memory, one segment, and the same text whatever the packets."""
    monkeypatch.setattr(long_audio, "LONGEST_MS", 3000)
    samples, kept = recording(9, seconds=2.0, parts=6), list[int]()
    recognizer = recognizer_of(model)
    expected = recognizer.transcribe(samples)
    assert len(expected.segments) == 1
    session = recognizer.start()
    for packet in packets(samples, 1):
        session.accept(packet)
        kept.append(session.stream._feats.end - session.stream._feats.start)
    assert_same(session.finish(), expected)
    assert max(kept) < 600 < 0.5 * len(samples) / audio.HOP
    monkeypatch.setattr(FeatureQueue, "drop", lambda self, before: None)
    assert_same(recognizer.transcribe(samples), expected)  # what is dropped is not needed


def test_control_features_that_are_forgotten_too_early(
    model: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies before a span is lost as soon as the span before it is cut."""
    samples, recognizer = recording(5), recognizer_of(model, Endpointer(300))
    expected = recognizer.transcribe(samples)
    monkeypatch.setattr(Spans, "first_needed", property(lambda self: self.value.start))
    assert recognizer.transcribe(samples).text != expected.text


def test_live_steps_wait_for_one_step_at_most(model: Network) -> None:
    """Of the second pass, whose audio is bounded, however many streams have ended."""
    recognizer = recognizer_of(model)
    second, kinds = recognizer.decoding.second, list[tuple[str, int]]()
    assert second is not None
    for name, engine in (("live", recognizer.engine), ("ended", second.engine)):
        honest = engine.backend

        def noted(
            feats: np.ndarray,
            lengths: np.ndarray,
            state: object,
            of: object = honest,
            name: str = name,
        ) -> object:
            kinds.append((name, feats.shape[0] * feats.shape[1]))
            return of.step(feats, lengths, state)  # type: ignore[attr-defined]

        engine.backend = honest._replace(step=noted)  # type: ignore[arg-type]
    batcher = Batcher(recognizer)
    talking, ended = batcher.start(), [batcher.start() for _ in range(8)]
    for session in ended:
        session.accept(speech(9.0))
        session.finish()
    while any(session.seconds_waiting for session in ended):
        batcher.step()
    talking.accept(speech(3.0))
    kinds.clear()
    drain(batcher)
    order = [name for name, _ in kinds]
    assert order[:4] == ["ended", "live", "ended", "live"] or order[:3] == ["live", "ended", "live"]
    assert all(size <= 3100 for name, size in kinds if name == "ended")
    assert all(session.result.is_final for session in ended)


def steps_after_finish(recognizer: Recognizer, samples: np.ndarray) -> tuple[int, Result]:
    """Steps of the first pass that follow the end of a session, and its result."""
    batcher, steps = Batcher(recognizer), 0
    session = batcher.start()
    for packet in packets(samples, 2):
        session.accept(packet)
        drain(batcher)
    session.finish()
    while not session.over:
        waits = bool(session.stream.ended_feats)
        batcher.step()
        steps += not waits
    return steps, session.result


def test_last_frames_take_no_step_of_the_first_pass(
    model: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless a segment or a span may end among them; results are the same with the step."""
    monkeypatch.setattr(long_audio, "LONGEST_MS", 5000)
    long, short = recording(3), recording(3, parts=2)[: 56 * RATE // 16]  # amid a chunk
    found: dict[str, tuple[int, Result]] = {}
    for turn in range(2):
        for name, endpointer, samples in (
            ("whole", None, short),
            ("pauses", Endpointer(1000), short),
            ("a pause", Endpointer(40), short),
            ("long segment", Endpointer(1000, max_segment_ms=1000), short),
            ("turns", Endpointer(1000), long),
            ("spans", None, long[: 5 * RATE + 800]),
        ):
            steps, result = steps_after_finish(recognizer_of(model, endpointer), samples)
            if turn:
                assert_same(result, found[name][1])
                assert steps >= 1
            else:
                found[name] = steps, result
        monkeypatch.setattr(Transcript, "skip", lambda self, frames: False)  # as before
    steps = {name: number for name, (number, _) in found.items()}
    assert [name for name, number in steps.items() if number == 0] == ["whole", "pauses", "turns"]


def test_hotwords_prefer_texts_of_the_last_pass(model: Network) -> None:
    """Greedy search takes none; the second pass does."""
    recognizer, samples = recognizer_of(model), recording(3)
    plain = recognizer.transcribe(samples)
    phrases = {"k b": 20.0}
    biased = recognizer.transcribe(samples, hotwords=phrases)
    assert biased.text.count("k b") > plain.text.count("k b")
    greedy = recognizer.with_final_search(GreedySearch())
    with pytest.raises(UserError, match="cannot use hotwords"):
        greedy.transcribe(samples, hotwords=phrases)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"chunk_size": 8, "second_pass": 4}, r"than the first pass, 320\+160 ms, got 160 ms"),
        ({"chunk_size": "full", "second_pass": "full"}, "larger context than the first pass, full"),
        ({"second_pass": "whole"}, "second_pass must be 1 to 90000 frames or 'full', got 'whole'"),
        ({"second_search": "greedy"}, "second_search needs second_pass"),
        ({"second_pass": "full", "second_search": "greedy", "lm": "x.arpa"},
         "search greedy takes no language model"),
    ],
)  # fmt: skip
def test_second_pass_that_does_not_fit_is_refused_by_name(
    options: dict[str, object], told: str
) -> None:
    with pytest.raises(UserError, match=told):
        load("small-en-alnum", **options)  # type: ignore[arg-type]
