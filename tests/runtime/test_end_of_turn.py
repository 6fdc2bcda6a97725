"""The label for ends of turns: hidden from texts, and with a short pause the end of a segment."""

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

import asrkit
from asrkit import Endpointer
from asrkit.audio import Fbank, features
from asrkit.backends.pytorch import eager
from asrkit.errors import UserError
from asrkit.model import Context, TransducerHead
from asrkit.runtime import Recognizer
from asrkit.runtime.endpoint import EAGERNESS, Eagerness
from asrkit.search import (
    GreedySearch,
    PrefixBeamSearch,
    Search,
    TransducerBeamSearch,
    TransducerGreedySearch,
)
from asrkit.search.base import log_softmax
from asrkit.search.forced_alignment import ForcedAlignment
from asrkit.text import END_OF_TURN, CharTokenizer
from tests.conftest import fitted, speech, tiny_model
from tests.laws.test_any_configuration import assert_same
from tests.laws.test_streaming import packets
from tests.runtime.test_endpoint import cuts_of

TOKENIZER = CharTokenizer(list("abcdefghij ")).with_label(END_OF_TURN)
LABEL = TOKENIZER.vocab_size - 1
SHORT = EAGERNESS["medium"].pause_ms // 40  # frames
SAMPLES = np.concatenate([speech(1.7, 1), np.zeros(12_000, np.float32), speech(1.0, 2)])


QUIET = [False, False] + 30 * [True]
ENDS = [0.0] * 2 + [0.7, 0.6, 0.5] + [0.0] * 27  # together 0.94
TALKING = [False, False, True, True, False] + 27 * [True]  # the next word takes it back
BEFORE = [0.0, 0.95] + 30 * [0.0]  # in the frame of the last word, as transducers write


@pytest.mark.parametrize(
    ("changes", "quiet", "ends", "cut"),
    [({}, QUIET, ENDS, 2 + SHORT), ({"end_of_turn": "low"}, QUIET, ENDS, 2 + 25),
     ({"end_of_turn": None}, QUIET, ENDS, 2 + 25),  # the pause alone
     ({}, QUIET, [0.0] * 32, 2 + 25), ({"pause_ms": None}, QUIET, ENDS, 2 + SHORT),
     ({}, TALKING, ENDS, 5 + 25), ({}, QUIET, BEFORE, 2 + SHORT)],
)  # fmt: skip
def test_a_posterior_and_a_short_pause_end_a_turn(
    changes: dict[str, Any], quiet: list[bool], ends: list[float], cut: int
) -> None:
    endpointer = Endpointer(**{"pause_ms": 1000, "end_of_turn": "medium"} | changes)
    for edges in ([0, 32], [0, 1, 3, 8, 32]):
        parts = [slice(*each) for each in pairwise(edges)]
        assert cuts_of(endpointer, quiet, parts, ends=ends) == [cut]


@pytest.mark.parametrize("search", [GreedySearch(), PrefixBeamSearch(4)])
def test_searches_read_the_label_as_blank(search: Search) -> None:
    frames = np.random.default_rng(0).normal(size=(60, LABEL + 1))
    frames[::3, LABEL] = 5.0
    frames = log_softmax(frames)
    without = frames.copy()
    without[:, 0] = np.logaddexp(frames[:, 0], frames[:, LABEL])
    without = without[:, :LABEL]
    own = search.bound(None, LABEL)
    after, plainly = own.step(own.start(), frames), search.step(search.start(), without)
    found, other = own.best(after), search.best(plainly)
    assert found[:3] == other[:3]
    assert found.confidences == pytest.approx(other.confidences, rel=1e-9)
    assert LABEL not in found.tokens
    assert after.quiet == plainly.quiet
    assert after.ends == pytest.approx(np.exp(frames[:, LABEL]).tolist())
    assert LABEL in search.best(search.step(search.start(), frames)).tokens  # control
    aligned = ForcedAlignment([1, 2, 3]).bound(None, LABEL)
    plain = ForcedAlignment([1, 2, 3])
    expected = plain.best(plain.step(plain.start(), without))
    assert aligned.best(aligned.step(aligned.start(), frames))[:3] == expected[:3]


def recognizer(kind: str, bias: float = 0.0, beam: bool = False, **options: Any) -> Recognizer:
    """A tiny network that writes letters and ends of turns, with pauses of one frame."""
    head: dict[str, Any] = {"kind": kind}
    if kind == "transducer":
        head |= {"predictor_dim": 12, "joint_dim": 16, "max_symbols": 2}
    model, frontend = tiny_model(LABEL + 1, head=head).double(), Fbank().converted(np.float64)
    samples = torch.from_numpy(SAMPLES).double()[None]
    feats, _ = features(frontend, samples.numpy(), np.array([samples.size(1)]))
    feats = torch.from_numpy(feats)
    model = fitted(model, feats, 4, 8)
    own = model.head
    with torch.no_grad():
        (own.out if isinstance(own, TransducerHead) else own).bias[LABEL] += bias
    search: Search = PrefixBeamSearch(3) if beam else GreedySearch()
    if isinstance(own, TransducerHead):
        search = TransducerBeamSearch(own) if beam else TransducerGreedySearch(own)
    endpointer = Endpointer(**{"pause_ms": 400, "end_of_turn": "high"} | options)
    return Recognizer(eager(model, Context(4, 8)), TOKENIZER, search, endpointer=endpointer)


@pytest.mark.parametrize("beam", [False, True])
@pytest.mark.parametrize(("kind", "bias"), [("ctc", -1.0), ("transducer", 0.5)])
def test_turns_end_at_the_same_places_in_packets_and_after_a_restart(
    monkeypatch: pytest.MonkeyPatch, kind: str, bias: float, beam: bool
) -> None:
    """Streaming equals offline for ends of turns. Without the label pauses alone end segments."""
    monkeypatch.setitem(EAGERNESS, "high", Eagerness(0.4, 40))
    own = recognizer(kind, bias, beam)
    expected = own.transcribe(SAMPLES)
    assert END_OF_TURN not in expected.text
    for seed in range(2):
        session, draw = own.start(), random.Random(seed)
        for packet in packets(SAMPLES, seed):
            session.accept(packet)
            if seed and draw.random() < 0.3:
                session = own.restore(session.save())
        assert_same(session.finish(), expected)
    pauses = own.decoding.endpointer
    assert pauses is not None
    decoding = own.decoding._replace(endpointer=pauses.changed(end_of_turn=None))
    alone = own.with_decoding(decoding).transcribe(SAMPLES)
    assert [each.end for each in expected.segments] != [each.end for each in alone.segments]
    removed = recognizer(kind, -1e3, beam)  # the control
    other = recognizer(kind, -1e3, beam, end_of_turn=None)
    assert_same(removed.transcribe(SAMPLES), other.transcribe(SAMPLES))


def test_a_model_without_the_label_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="this model has no label for ends of turns"):
        asrkit.load("small-en-alnum", endpointer=Endpointer(end_of_turn="low"))
    model = asrkit.load("small-en-alnum")
    decoding = model.decoding._replace(endpointer=Endpointer(end_of_turn="low"))
    with pytest.raises(UserError, match="end_of_turn low"):
        model.with_decoding(decoding)
    with pytest.raises(UserError, match="must be low, medium, high or None, got 'soon'"):
        Endpointer(end_of_turn="soon")
