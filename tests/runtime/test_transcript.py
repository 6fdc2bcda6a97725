"""The value of a transcript, from which another one continues."""

import pytest
import torch

from asrkit import Endpointer
from asrkit.audio import Fbank
from asrkit.backends import eager
from asrkit.model import Context
from asrkit.runtime.engine import Engine
from asrkit.runtime.long_audio import SecondPass
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
    restored.restore(value)
    assert restored.value.waiting == value.waiting
    assert restored.partial() == transcript_of(SAID).partial()
