"""Endpoints: segments end at pauses, cover the stream, and lose, double or cut nothing."""

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import soxr
import torch
from torch import Tensor

import asrkit
from asrkit.errors import UserError
from asrkit.runtime import Endpointer, Result
from asrkit.runtime.endpoint import BREATH_MS, EndpointState
from asrkit.runtime.engine import SpeechDetector
from asrkit.runtime.transcript import DecodingOptions, Transcript
from asrkit.runtime.words import LEAD, TRAIL, Clock
from asrkit.search import GreedySearch, PrefixBeamSearch, Search
from asrkit.text import WordTokenizer
from recipes.digits.prepare import ESPEAK_RATE, synthesise

FRAME_MS = 40
WORDS = WordTokenizer(["yes", "no", "go", "stop"])


def split(size: int, draw: random.Random) -> list[slice]:
    """A range in parts of random sizes, also 0."""
    edges = sorted(draw.choices(range(size + 1), k=draw.randrange(1, 8)))
    return [slice(a, b) for a, b in zip([0, *edges], [*edges, size], strict=True)]


def cuts_of(
    endpointer: Endpointer, quiet: list[bool], parts: list[slice], frame_ms: int = FRAME_MS,
    ends: Sequence[float] = (),
) -> list[int]:  # fmt: skip
    state, cuts = endpointer.start(), []
    for part in parts:
        state, found = endpointer.step(state, quiet[part], frame_ms, ends[part])
        cuts += [part.start + cut for cut in found]
    return cuts


def defined(endpointer: Endpointer, quiet: list[bool], frame_ms: int = FRAME_MS) -> list[int]:
    """The rules, asked of every frame by looking at all of its segment."""

    def frames(milliseconds: int) -> int:
        return max(1, math.floor(milliseconds / frame_ms + 0.5))

    cuts, start = [], 0
    longest = endpointer.max_segment_ms
    pause_frames = math.inf if endpointer.pause_ms is None else frames(endpointer.pause_ms)
    for end in range(1, len(quiet) + 1):
        segment = quiet[start:end]
        if all(segment):
            continue
        pause = segment[::-1].index(False)
        is_long = longest is not None and len(segment) >= frames(longest)
        if pause >= pause_frames or (is_long and pause >= frames(BREATH_MS)):
            cuts.append(end)
            start = end
    return cuts


def random_endpointer(draw: random.Random) -> Endpointer:
    endpointer = Endpointer(
        pause_ms=draw.randrange(80, 600),
        max_segment_ms=draw.choice([None, draw.randrange(40, 3000)]),
    )
    without = endpointer.changed(pause_ms=None) if draw.random() < 0.2 else None
    return without or endpointer


def test_another_pause_leaves_the_other_options() -> None:
    """Times are whole numbers of any kind."""
    endpointer = Endpointer(600.0, np.int64(10**15), vad=True)  # type: ignore[arg-type]
    times = endpointer.pause_ms, endpointer.max_segment_ms
    assert times == (600, 10**15)
    assert [type(each) for each in times] == [int] * 2
    for pause_ms in (1, 5000, None):
        other = endpointer.changed(pause_ms=pause_ms)
        assert other is not None
        assert vars(other) == vars(endpointer) | {"pause_ms": pause_ms}
    assert Endpointer(600).changed(pause_ms=None) is None


def test_endpoints_are_at_the_pauses_that_the_options_describe() -> None:
    """500 random streams: the cuts are those of the definition, for every split."""
    draw, found = random.Random(0), 0
    for _ in range(500):
        endpointer = random_endpointer(draw)
        talk = draw.uniform(0.02, 0.5)
        quiet = [draw.random() > talk for _ in range(draw.randrange(400))]
        for frame_ms in (40, 80):
            expected = defined(endpointer, quiet, frame_ms)
            assert cuts_of(endpointer, quiet, [slice(0, len(quiet))], frame_ms) == expected
            assert cuts_of(endpointer, quiet, split(len(quiet), draw), frame_ms) == expected
            found += len(expected)
    assert found > 4000


def test_control_a_forgotten_pause_is_noticed() -> None:
    class Forgetful(Endpointer):
        def step(self, state, *given):  # type: ignore[no-untyped-def]
            return super().step(EndpointState(state.frames, 0, state.spoken), *given)

    quiet = [False] + [True] * 40
    endpointer = Forgetful(400)
    assert cuts_of(endpointer, quiet, [slice(0, 41)]) == defined(endpointer, quiet) == [11]
    assert cuts_of(endpointer, quiet, [slice(0, 6), slice(6, 41)]) != [11]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pause_ms": 0}, "pause_ms must be a whole number of at least 1, got 0"),
        ({"max_segment_ms": 0}, "max_segment_ms must be a whole number of at least 1, got 0"),
        ({"pause_ms": 0.5}, "pause_ms must be .* got 0.5"),
        ({"max_segment_ms": float("inf")}, "max_segment_ms must be .* got inf"),
        ({"vad": "yes"}, "vad must be True or False, got 'yes'"),
    ],
)
def test_options_out_of_range_are_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Endpointer(**arguments)


def posteriors(draw: random.Random, vocab_size: int) -> Tensor:
    """(E, V) of words and pauses of all lengths."""
    ids: list[int] = []
    while len(ids) < 200:
        ids += [0] * draw.choice([1, 2, 3, 12, 30])
        ids += [draw.randrange(1, vocab_size)] * draw.randrange(1, 4)
    noise = torch.rand(len(ids), vocab_size, generator=torch.Generator().manual_seed(len(ids)))
    noise[range(len(ids)), ids] += 3.0
    return (3.0 * noise).log_softmax(1).numpy()


def read(decoding: DecodingOptions, log_probs: np.ndarray, parts: list[slice]) -> list[Result]:
    """The results after every part, the final one last."""
    transcript, results = Transcript(decoding, Clock(FRAME_MS)), []
    for part in parts:
        transcript.append(log_probs[part])
        results.append(transcript.partial())
    return [*results, transcript.finish(math.inf)]


def test_no_word_is_lost_or_doubled() -> None:
    """60 random streams: words and times are those of one pass, wherever the pauses are."""
    draw, segments = random.Random(2), 0
    for _ in range(60):
        log_probs = posteriors(draw, 5)
        *_, whole = read(DecodingOptions(WORDS, GreedySearch()), log_probs, [slice(0, None)])
        decoding = DecodingOptions(WORDS, GreedySearch(), random_endpointer(draw))
        *_, cut = read(decoding, log_probs, [slice(0, None)])
        assert cut.text == whole.text
        last = {segment.words[-1] for segment in cut.segments}
        for one, other in zip(cut.words, whole.words, strict=True):  # or where the segment begins
            assert 0.0 <= one.start - other.start < LEAD + 1e-9
            # The next word may cut the end of one short, but for the last word of a segment.
            assert 0.0 <= one.end - other.end < (TRAIL if one in last else 0.0) + 1e-9
        assert len(whole.segments) == 1
        segments += len(cut.segments)
    assert segments > 300


@pytest.mark.parametrize("search", [GreedySearch, PrefixBeamSearch])
def test_a_pause_is_where_the_search_hears_nothing(search: Callable[..., Search]) -> None:
    """With the blank lowered a word goes on where, without, there would be a pause."""
    said, fading = [0.1, 0.6, 0.1, 0.1, 0.1], [0.4, 0.3, 0.1, 0.1, 0.1]
    log_probs = np.log([said] + [fading] * 29)
    found = []
    for penalty in (0.0, 2.0):
        searcher = search(blank_penalty=penalty)
        options = [DecodingOptions(WORDS, searcher, e) for e in (None, Endpointer(400))]
        whole, cut = (read(each, log_probs, [slice(0, None)])[-1] for each in options)
        assert cut.text == whole.text
        found.append(cut.segments[0].end)
    assert found == [0.44, 1.2]


def test_control_a_cut_inside_a_word_is_noticed() -> None:
    class Hasty(Endpointer):
        def step(self, state, quiet, frame_ms, ends=()):  # type: ignore[no-untyped-def]
            first = [i + 1 for i, each in enumerate(quiet) if not each][:1]
            return state, first  # a word of several frames goes on

    log_probs = torch.full((6, 5), -9.0)
    log_probs[range(6), [0, 1, 1, 1, 0, 0]] = 0.0
    options = [DecodingOptions(WORDS, GreedySearch(), e) for e in (Endpointer(40), Hasty(40))]
    results = [read(each, log_probs, [slice(0, None)])[-1].text for each in options]
    assert results == ["yes", "yes yes yes"]


def said(text: str) -> np.ndarray:
    """A text spoken by espeak-ng, float32 at 16 kHz."""
    draw = np.random.default_rng(3)
    return soxr.resample(synthesise(text, "en", draw) / 32768, ESPEAK_RATE, 16000).astype("float32")


def test_each_spoken_line_is_a_segment() -> None:
    """The ready model on digits with pauses between: a segment each, cut in the pause, and no
    space is missing between them, as there is in one pass."""
    silence = np.zeros(24000, dtype=np.float32)
    texts = ["four four seven", "nine", "one two three four five", "six zero"]
    spoken = [said(text) for text in texts]
    samples = np.concatenate([part for each in spoken for part in (each, silence)])
    for vad in (False, True):
        recognizer = asrkit.load("small-en-alnum", endpointer=Endpointer(600, vad=vad))
        segments = recognizer.transcribe(samples).segments
        assert [segment.text for segment in segments] == texts
        start = 0.0
        for each, segment in zip(spoken, segments, strict=True):
            assert start < segment.words[0].start
            assert segment.words[-1].end < start + len(each) / 16000 + 0.3
            start += (len(each) + len(silence)) / 16000
            assert segment.end <= start


def test_the_speech_detector_finds_speech() -> None:
    """Speech is heard in speech and not in silence."""
    silence = np.zeros(16000, dtype=np.float32)
    samples = torch.from_numpy(np.concatenate([silence, said("four four seven"), silence]))
    detector = SpeechDetector(FRAME_MS)
    _, expected = detector.step(detector.start(), samples)
    assert len(expected) == len(samples) // 640
    assert not any(expected[:20] + expected[-20:])
    assert sum(expected) > 0.5 * (len(expected) - 50)
    detector = SpeechDetector(2 * FRAME_MS)
    pairs = zip(expected[::2], expected[1::2], strict=False)
    assert detector.step(detector.start(), samples)[1] == [any(pair) for pair in pairs]


def test_a_pause_with_speech_in_it_goes_on() -> None:
    """Where the network hears nothing but the detector does, nobody is cut off."""
    log_probs = torch.full((30, 5), -9.0)
    log_probs[range(30), [1, *[0] * 29]] = 0.0
    transcript = Transcript(
        DecodingOptions(WORDS, GreedySearch(), Endpointer(400)), Clock(FRAME_MS)
    )
    transcript.append(log_probs[:20], speech=[True] * 15)
    assert not transcript.segments
    transcript.append(log_probs[20:])
    assert [segment.end for segment in transcript.segments] == [1.0]


def test_a_segment_that_is_rewritten_to_nothing_has_ended() -> None:
    """What is said after its pause is rewritten by itself, and found where it was said."""
    log_probs = np.full((60, 5), -9.0)
    log_probs[:, 0] = 0.0
    for frame, label in ((5, 1), (30, 2), (55, 3)):  # yes, no, go
        log_probs[frame, [0, label]] = [-9.0, 0.0]

    def without_no(text: str) -> str:
        return "" if text == "no" else text

    for search in (GreedySearch(), PrefixBeamSearch()):
        decoding = DecodingOptions(WORDS, search, Endpointer(pause_ms=400), without_no)
        transcript = Transcript(decoding, Clock(FRAME_MS))
        transcript.append(log_probs)
        result = transcript.finish(2.4)
        assert [segment.text for segment in result.segments] == ["yes", "go"]
        first, second = result.segments
        assert first.end == second.start
        assert second.words[0].start == pytest.approx(55 * 0.04 - LEAD)
