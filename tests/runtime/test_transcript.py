"""Values of a transcript that no stream can have are refused, with what is wrong."""

from typing import Any

import pytest
import torch

from asrkit import Endpointer
from asrkit.audio import Fbank
from asrkit.backends import eager
from asrkit.model import Context
from asrkit.runtime.engine import Engine
from asrkit.runtime.second_pass import SecondPass
from asrkit.runtime.serialization import plain, read
from asrkit.runtime.transcript import DecodingOptions, Transcript, TranscriptValue
from asrkit.search import GreedySearch
from asrkit.text import WordTokenizer
from tests.conftest import tiny_model

LETTERS = WordTokenizer(list("abcdefghijk"))
SAID = [1, 1, 0, 2, *[0] * 8, 3, 3, 0, 4, *[0] * 8, 5, 0, 0]  # labels of frames; two pauses


def transcript() -> Transcript:
    engine = Engine(eager(tiny_model(LETTERS.vocab_size), Context(4, 16)), Fbank())
    second = SecondPass(engine, GreedySearch())
    return Transcript(DecodingOptions(LETTERS, GreedySearch(), Endpointer(200), None, second), 40)


def transcript_of(said: list[int]) -> Transcript:
    running = transcript()
    labels = torch.nn.functional.one_hot(torch.tensor(said), LETTERS.vocab_size)
    running.append(labels.double().mul(0.9).add(0.005).log())
    return running


@pytest.fixture(scope="module")
def value() -> TranscriptValue:
    """Two spans wait for the second pass."""
    running = transcript_of(SAID)
    assert len(running.waiting) == 2
    tensors: dict[str, torch.Tensor] = {}
    return read(TranscriptValue, plain(running.value, tensors), tensors)


def test_a_value_goes_on_as_it_was(value: TranscriptValue) -> None:
    restored = transcript()
    restored.restore(value, LETTERS.vocab_size)
    assert restored.value.waiting == value.waiting
    assert restored.partial() == transcript_of(SAID).partial()


def first_span(value: TranscriptValue, **changes: Any) -> TranscriptValue:
    (span, words), *others = value.waiting
    return value._replace(waiting=((span._replace(**changes), words), *others))


def test_impossible_values_are_refused(value: TranscriptValue) -> None:
    assert value.endpoint is not None
    frame, (first, _), point = value.frame, value.waiting[0], value.endpoint
    wrong = [
        (value._replace(start=frame + 1), "a segment starts late"),
        (value._replace(start=-1), "a segment starts late"),
        (value._replace(live=value.live._replace(start=frame + 1)), "a segment starts late"),
        (value._replace(endpoint=None), "an endpointer is missing"),
        (value._replace(final=None), "a second pass is missing"),
        (value._replace(endpoint=point._replace(frames=frame + 1)), "pause is"),
        (value._replace(endpoint=point._replace(pause=point.frames + 1)), "pause is"),
        (value._replace(endpoint=point._replace(pause=-1)), "pause is"),
        (value._replace(endpoint=point._replace(goes_on=1.5)), "no probability"),
        (value._replace(endpoint=point._replace(goes_on=-0.5)), "no probability"),
        (value._replace(spans=value.spans._replace(quiet=())), "the spans have"),
        (first_span(value, last=frame + 1), "the spans overlap"),
        (first_span(value, end=first.last + 1), "the spans overlap"),
        (first_span(value, start=first.end + 1), "the spans overlap"),
        (first_span(value, first=first.start + 1), "the spans overlap"),
        (first_span(value, first=-1), "the spans overlap"),
        (first_span(value, start=-1, first=-1), "the spans overlap"),
        (value._replace(waiting=value.waiting[::-1]), "the spans overlap"),
    ]  # fmt: skip
    for each, message in wrong:
        with pytest.raises(ValueError, match=message):
            transcript().restore(each, LETTERS.vocab_size)
