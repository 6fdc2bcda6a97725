"""Law 1 for what nobody thought of: networks, searches and endpoints drawn at random.

And for exports, with the texts and times that eager has.

ASRKIT_DEVICE=cuda pytest tests/laws/test_any_configuration.py tries them on a GPU, and
ASRKIT_DRAWS=500 pytest -m slow tests/laws/test_any_configuration.py draws 500.
"""

import math
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from asrkit import Batcher, Endpointer, audio, load
from asrkit.backends import Backend
from asrkit.backends.backend import Output, State
from asrkit.backends.pytorch import eager, known_device
from asrkit.build import FUSIONS, pieces_of
from asrkit.lm import Hotwords, Weighted, read_arpa
from asrkit.lm.kneser_ney import arpa_lines, estimate
from asrkit.lm.lm_fusion import as_word
from asrkit.model import FULL_CONTEXT, Context, TransducerHead
from asrkit.model.layer import NORMS, PADDINGS
from asrkit.model.positions import KINDS
from asrkit.runtime import BatchedSession, Recognizer, Result, Segment, Session, Word
from asrkit.search import (
    Fusion,
    GreedySearch,
    PrefixBeamSearch,
    Search,
    TransducerBeamSearch,
    TransducerGreedySearch,
)
from asrkit.text import (
    END_OF_TURN,
    CharTokenizer,
    SentencePieceTokenizer,
    Tokenizer,
    WordTokenizer,
    end_of_turn,
)
from tests.conftest import PADDED, PADDED4, SPEECH, STRIDED, fitted, speech, timed, tiny_model
from tests.laws.test_streaming import desynchronised, drain, packets

TOKENIZERS: list[Callable[[], Tokenizer]] = [
    lambda: CharTokenizer(list("abcdefghij ")),
    lambda: WordTokenizer(
        ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "oh", "stop"]
    ),
    lambda: SentencePieceTokenizer.train(["yes no maybe", "no yes nose", "may be seen"] * 3, 14),
]


def backwards(text: str) -> str:
    return " ".join(text.split()[::-1])


def divided(text: str) -> str:
    return text.replace("e", "e ")


def nothing(text: str) -> str:
    return ""


REWRITINGS: list[Callable[[str], str] | None] = [
    *[None] * 4, str.upper, backwards, divided, nothing,
]  # fmt: skip

DEVICE = known_device(os.environ.get("ASRKIT_DEVICE", "cpu"))
DRAWS = int(os.environ.get("ASRKIT_DRAWS", "300"))  # of the slow test
EXPORTED: dict[int, dict[str, Any]] = {  # options of loading the ready model's exports, by seed
    -1: {"second_pass": "full", "endpointer": Endpointer(300)},
    -2: {"search": {"kind": "prefix_beam", "beam": 4}},
}
FAST = [  # each position encoding, subsampling, frontend, rate, search and end of a segment
    *EXPORTED, 0, 1, 2, 7, 11, 13, 29, 31, 35, 39, 54, 59, 60, 64, 76, 83, 93, 100, 102,
]  # fmt: skip
ROUNDING = {"float64": 1e-9, "float32": 1e-4}  # of scores and confidences, by a network's precision
CONTROLS = (-2, 0, 2, 10, 13, 14, 17, 19)  # cheap seeds; one of them has full context
NO_SAMPLES = [float("nan"), float("-inf"), 1e20, -1e3]
TRANSDUCER = {"kind": "transducer", "predictor_dim": 12, "joint_dim": 16, "max_symbols": 2}
SHAPES: dict[str, list[Any]] = {
    "dim": [8, 24], "num_heads": [1, 2, 4], "num_layers": [1, 2, 3], "kernel_size": [2, 5, 31],
    "position": sorted(KINDS), "conv_norm": sorted(NORMS), "conv_padding": [*PADDINGS],
    "after_norm": [False, False, True], "layer": [*["conformer"] * 4, "transformer"],
    "subsampling": [
        {"kind": "conv4"}, {"kind": "conv4", "channels": 3},
        {"kind": "conv4", "channels": 3, "separable": True}, PADDED, PADDED4, *STRIDED,
        *({"kind": kind, "channels": 3} for kind in ("conv4_valid", "conv6_valid", "conv8_valid")),
    ],
    "head": [*["ctc"] * 4, TRANSDUCER, TRANSDUCER | {"predictor": "stateless", "max_symbols": 3}],
}  # fmt: skip
PAUSES: dict[str, list[Any]] = {
    "pause_ms": [1, 40, 100, 300, 1000], "max_segment_ms": [None, 400],
    "vad": [*[False] * 4, True],
}  # fmt: skip


class Case(NamedTuple):
    recognizer: Recognizer
    samples: np.ndarray
    rate: int
    drawn: str  # for the message of a failure


def case(seed: int, folder: Path) -> Case:
    if seed in EXPORTED:
        return exported(seed)
    draw = random.Random(seed)
    tokenizer = draw.choice(TOKENIZERS)()
    if draw.random() < 0.3 and not isinstance(tokenizer, SentencePieceTokenizer):
        tokenizer = tokenizer.with_label(END_OF_TURN)
    rate = draw.choice([8000, 11025, 16000, 22050, 44100, 48000])
    samples = recording(draw, seed, rate)
    chunk_size = draw.choice([1, 2, 3, 5, 16, FULL_CONTEXT])
    left = 0 if chunk_size == FULL_CONTEXT else draw.choice([0, 1, 7, 64])
    context = Context(chunk_size, left, draw.choice([0, 0, 1, 3, 9]))
    shape = {name: draw.choice(values) for name, values in SHAPES.items()}
    model = tiny_model(tokenizer.vocab_size, **shape)
    kind = draw.choice(sorted(audio.KINDS))
    frontend = audio.build_frontend(kind, 80, model.encoder.rate.lead_frames)
    whole = audio.resample(samples, rate).astype(np.float64)[None]
    exact = frontend.converted(lambda array: array.astype(np.float64))
    feats, _ = audio.features(exact, whole, np.array([whole.shape[1]]))
    model = fitted(model, torch.from_numpy(feats), chunk_size, left)
    if not isinstance(model.head, TransducerHead):  # which `fitted` gave some pauses
        with torch.no_grad():
            model.head.bias[0] += draw.choice([0.0, 0.0, 1.0])
    pauses = {name: draw.choice(values) for name, values in PAUSES.items()}
    if end_of_turn(tokenizer) is not None:
        pauses["end_of_turn"] = draw.choice(["low", "high"])
    endpointer = Endpointer(**pauses) if draw.random() < 0.6 else None
    larger = [size for size in (0, 0, 4, 16, FULL_CONTEXT) if size == 0 or size > chunk_size]
    second = draw.choice(larger) if chunk_size != FULL_CONTEXT else 0
    searches = [drawn_search(draw, tokenizer, folder) for _ in range(2)]
    if isinstance(model.head, TransducerHead):
        searches = [of_transducer(each, model.head) for each in searches]
    model = model.to(DEVICE)
    recognizer = Recognizer(
        eager(model, context), tokenizer, searches[0], endpointer=endpointer,
        postprocess=draw.choice(REWRITINGS), frontend=frontend,
        second_pass=eager(model, Context(second, left)) if second else None,
        second_search=draw.choice([None, searches[1]]) if second else None,
    )  # fmt: skip
    drawn = f"{rate} Hz, {kind}, {context}, {shape}, {endpointer and pauses}, second pass {second}"
    return Case(recognizer, samples, rate, f"{drawn}, {[vars(each) for each in searches]}")


def exported(seed: int) -> Case:
    pause = np.zeros(12000, np.float32)
    samples = np.concatenate([audio.load(SPEECH), pause, speech(1.0), pause])
    recognizer = load("small-en-alnum", backend="onnx", **EXPORTED[seed])
    return Case(recognizer, samples, audio.SAMPLE_RATE, str(EXPORTED[seed]))


def recording(draw: random.Random, seed: int, rate: int) -> np.ndarray:
    """Speech, a pause, speech, in float32 or int16."""
    pause = np.zeros(int(rate * draw.choice([0, 0.3, 1.2])), dtype=np.float32)
    first, last = draw.choice([0.01, 0.5, 1.7]), draw.choice([0.3, 1.0])
    samples = np.concatenate([speech(first, seed, rate), pause, speech(last, seed + 1, rate)])
    return (samples * 32767).astype(np.int16) if draw.random() < 0.2 else samples


def drawn_search(draw: random.Random, tokenizer: Tokenizer, folder: Path) -> Search:
    if draw.random() < 0.4:
        return GreedySearch(blank_penalty=draw.choice([0.0, 0.5, 3.0]))
    pruning: dict[str, float] = draw.choice(
        [{}, {"min_token_prob": 0.05}, {"skip_blank_prob": 0.9}, {"blank_penalty": 1.0}]
    )
    search = PrefixBeamSearch(draw.choice([1, 2, 5, 12]), **pruning)
    pieces = pieces_of(tokenizer)
    if draw.random() < 0.5:
        search = search.plus(language_model(draw, pieces, folder))
    if draw.random() < 0.3:
        phrase = "".join(draw.choices(pieces[1:], k=3)).strip()
        search = (
            search.plus(Hotwords({phrase: draw.choice([0.5, 4.0])}, pieces)) if phrase else search
        )
    return search


def of_transducer(search: Search, head: TransducerHead) -> Search:
    """The search of the same kind, with the same options, for a transducer."""
    if isinstance(search, GreedySearch):
        return TransducerGreedySearch(head, search.blank_penalty)
    found = TransducerBeamSearch(head)
    vars(found).update(vars(search))
    return found


def language_model(draw: random.Random, pieces: list[str], folder: Path) -> Fusion:
    """Of texts that mean nothing, by words or by tokens."""
    written = [piece for piece in pieces if piece]  # neither the blank nor an end of turn
    texts = [draw.choices(written, k=draw.randrange(1, 12)) for _ in range(12)]
    words = draw.random() < 0.5
    units = ["".join(text).split() if words else [as_word(p) for p in text] for text in texts]
    path = folder / "lm.arpa"
    path.write_text("\n".join(arpa_lines(estimate([unit for unit in units if unit], 3))))
    weighted = Weighted(
        read_arpa(path), draw.choice([0.0, 0.3, 1.5]), draw.choice([-1.0, 0.0, 2.0])
    )
    return FUSIONS["words" if words else "tokens"](weighted, pieces)


def assert_sound(result: Result, seconds: float) -> None:
    """Words and segments follow each other inside the audio, whose last sample at 16 kHz may be
    only a part of one at the recording's own rate."""
    edges = [edge for word in result.words for edge in word[1:3]]
    assert edges == sorted(edges)
    ends = [segment.end for segment in result.segments]
    assert [segment.start for segment in result.segments] == [0.0, *ends][: len(ends)]
    assert max([0.0, *edges, *ends]) < seconds + 1 / audio.SAMPLE_RATE
    assert all(0.0 < word.confidence < 1 + 1e-9 for word in result.words)
    assert result.text == " ".join(word.text for word in result.words)


def assert_same(ours: Result, alone: Result, rounding: float = 1e-9) -> None:
    assert timed(ours) == timed(alone)
    words = zip(ours.words, alone.words, strict=True)
    assert all(abs(a.confidence - b.confidence) < rounding for a, b in words)
    for mine, other in zip(ours.segments, alone.segments, strict=True):
        assert mine[:1] + mine[2:4] == other[:1] + other[2:4]  # text, start, end
        assert [c.text for c in mine.nbest] == [c.text for c in other.nbest]
        pairs = zip(mine.nbest, other.nbest, strict=True)
        assert all(abs(a.score - b.score) < rounding for a, b in pairs)


def check(drawn: Case, seed: int) -> Result:
    """Return the one result of offline, two streams in packets, a batcher and a row of a batch.

    Packets that are refused come in between. Neighbours in the batcher are other signals.
    """
    recognizer, samples, rate, what = drawn
    print(what)
    seconds, rounding = len(samples) / rate, ROUNDING[recognizer.backend.spec.dtype]
    expected = recognizer.transcribe(samples, rate)
    assert_sound(expected, seconds)
    for way in range(2):
        draw = random.Random(2 * seed + way)
        session, before, heard = recognizer.start(rate), Result("", (), False), 0
        for packet in packets(samples, 2 * seed + way):
            refused(session, packet, draw)
            heard += len(packet)
            partial = session.accept(packet)
            assert_sound(partial, heard / rate + 1e-3)  # resampling may add a part of a millisecond
            assert partial.segments[: len(before.segments)] == before.segments  # what ended stays
            assert partial.stable_text.startswith(before.stable_text)
            before = partial
        final = session.finish()
        assert final.stable_text == final.text
        assert final.text.startswith(before.stable_text)
        assert_same(final, expected, rounding)
    if recognizer.chunk_size != FULL_CONTEXT:
        signals = [samples, samples[::2], samples[: len(samples) // 3]]
        alone = [expected, *(recognizer.transcribe(each, rate) for each in signals[1:])]
        given = [(each, rate) for each in signals]
        together = desynchronised(recognizer, given, random.Random(seed), before=refused)
        for result, one in zip(together, alone, strict=True):
            assert_same(result, one, rounding)
    if rate == audio.SAMPLE_RATE:
        row = audio.mono(samples)
        assert_same(recognizer.transcribe_batch([row, row[::2]])[0], expected, rounding)
    return expected


def later(result: Result, seconds: float) -> tuple[list[Word], list[Segment]]:
    """The words and segments of a result, so many seconds later."""

    def moved(item: Word | Segment) -> Word | Segment:
        start, end = (round(at + seconds, 3) for at in (item.start, item.end))
        return item._replace(start=start, end=end)

    words = [moved(word) for word in result.words]
    segments = [
        moved(segment)._replace(words=tuple(map(moved, segment.words)))
        for segment in result.segments
    ]
    return words, segments


def one_after_another(
    recognizer: Recognizer, parts: list[np.ndarray], rate: int = audio.SAMPLE_RATE
) -> Result:
    """The result of recordings of their own, each of which begins at a whole millisecond."""
    words, segments, before = list[Word](), list[Segment](), 0
    for part in parts:
        at = math.floor(1000 * before / rate + 0.5) / 1000
        some, ended = later(recognizer.transcribe(part, rate), at)
        words, segments, before = words + some, segments + ended, before + len(part)
    return Result(" ".join(word.text for word in words), words, True, segments)


def refused(session: Session | BatchedSession, packet: np.ndarray, draw: random.Random) -> None:
    """Now and then, the packet with one sample that no audio has: it leaves no trace."""
    if draw.random() < 0.3:
        bad = np.insert(audio.mono(packet), draw.randint(0, len(packet)), draw.choice(NO_SAMPLES))
        with pytest.raises(audio.AudioError):
            session.accept(bad)


@pytest.mark.parametrize("seed", FAST)
def test_any_configuration(seed: int, tmp_path: Path) -> None:
    check(case(seed, tmp_path), seed)


@pytest.mark.parametrize("seed", EXPORTED)
def test_an_export_has_the_texts_and_times_of_eager(seed: int) -> None:
    recognizer, samples, *_ = exported(seed)
    eagerly = load("small-en-alnum", backend="eager", **EXPORTED[seed])
    assert_same(recognizer.transcribe(samples), eagerly.transcribe(samples), ROUNDING["float32"])


@pytest.mark.parametrize("seed", [seed for seed in FAST if seed != 7])  # which has halves of ms
def test_commits_divide_any_configuration(seed: int, tmp_path: Path) -> None:
    """The text between commits is that of its samples alone, whatever a neighbour does."""
    recognizer, samples, rate, what = case(seed, tmp_path)
    print(what)
    draw, rounding = random.Random(seed), ROUNDING[recognizer.backend.spec.dtype]
    first, second = sorted(draw.choices(range(len(samples)), k=2))
    parts = np.split(samples, sorted([first, first + 50, second]))  # 50: less than a frame
    sessions: list[Session | BatchedSession] = [recognizer.start(rate)]
    if recognizer.chunk_size != FULL_CONTEXT:
        batcher = Batcher(recognizer)
        sessions += [batcher.start(rate), batcher.start(rate)]
    for number, part in enumerate(parts):
        for packet in packets(part, number):
            for session in sessions:
                session.accept(packet)
            if len(sessions) > 1 and draw.random() < 0.2:
                batcher.step()
        for session in sessions[:2] if number < 3 else []:
            committed = session.commit()
            assert not committed.is_final
            assert session.commit() == committed  # there is nothing between these two
    for session in sessions:
        session.finish()
    if len(sessions) > 1:
        drain(batcher)
        assert_same(sessions[2].result, recognizer.transcribe(samples, rate), rounding)
    for session in sessions[:2]:
        assert_same(session.result, one_after_another(recognizer, parts, rate), rounding)


@pytest.mark.slow
def test_many_configurations(tmp_path: Path) -> None:
    results = [check(case(seed, tmp_path), seed) for seed in range(DRAWS)]
    assert sum(len(result.text) > 5 for result in results) > DRAWS / 2
    assert sum(len(result.segments) > 1 for result in results) > DRAWS / 12


def test_control_a_past_that_is_lost_is_noticed(tmp_path: Path) -> None:
    """Each step begins with an empty past; where all of a stream is one step none is needed."""
    noticed = []
    for seed in CONTROLS:
        drawn = case(seed, tmp_path)
        decoding = drawn.recognizer.decoding._replace(second=None)  # which hides the first pass
        drawn = drawn._replace(recognizer=drawn.recognizer.with_decoding(decoding))
        honest = drawn.recognizer.backend

        def forgetful(
            feats: np.ndarray, lengths: np.ndarray, _: State, honest: Backend = honest
        ) -> Output:
            return honest.step(feats, lengths, honest.init_state(len(feats)))

        drawn.recognizer.engine.backend = honest._replace(step=forgetful)
        try:
            check(drawn, seed)
        except AssertionError:
            noticed.append((drawn.recognizer.backend.kind, drawn.recognizer.chunk_size))
    assert {kind for kind, _ in noticed} == {"eager", "onnx"}
    assert all(chunk_size != FULL_CONTEXT for _, chunk_size in noticed)


def half_taken(recognizer: Recognizer, samples: np.ndarray, rate: int) -> Result:
    """The result where a packet is looked at only after its good part was taken."""
    session, half = recognizer.start(rate), len(samples) // 2
    for part in (samples[:half], samples[half:][: rate // 5], samples[half:]):
        session.accept(part)
    return session.finish()


@pytest.mark.parametrize("wrong", [
    half_taken,
    lambda recognizer, samples, rate: recognizer.transcribe(samples[rate // 25 :], rate),  # 40 ms
])  # fmt: skip
def test_control_other_samples_are_noticed(
    wrong: Callable[[Recognizer, np.ndarray, int], Result], tmp_path: Path
) -> None:
    noticed = 0
    for seed in CONTROLS:
        recognizer, samples, rate, _ = case(seed, tmp_path)
        whole = recognizer.transcribe(samples, rate)
        noticed += timed(whole) != timed(wrong(recognizer, samples, rate))
    assert noticed > 3
