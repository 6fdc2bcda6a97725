"""Law 1: streaming equals offline, from samples in packets of any size to text.

`encoder_laws` has the encoder's part, for every context, position encoding and subsampling.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from asrkit import Batcher, audio
from asrkit.backends.pytorch import eager
from asrkit.model import FULL, ConformerEncoder, Context, EncoderState, Network
from asrkit.runtime import BatchedSession, Recognizer, Result
from asrkit.search import GreedySearch
from asrkit.text import CharTokenizer
from tests.conftest import feats_of, fitted, speech, timed, tiny_model

LETTERS = CharTokenizer(list("abcdefghij "))
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


@pytest.mark.parametrize("right", [0, 3])
@pytest.mark.parametrize("field", EncoderState._fields)
def test_control_a_tampered_past_is_noticed(
    encoder: ConformerEncoder, field: str, right: int
) -> None:
    feats, lengths = torch.randn(1, 128 + 4 * right, 20, dtype=torch.float64), torch.tensor([64])
    lengths += 4 * right
    whole = encoder(feats, lengths + 64, encoder.init_state(1, 32), 16, right).frames[:, 16:32]
    state = encoder(feats[:, :-64], lengths, encoder.init_state(1, 32), 16, right).state
    tampered = state._replace(**{field: torch.zeros_like(getattr(state, field))})
    right_one, wrong = (
        encoder(feats[:, 64:], lengths, each, 16, right).frames[:, :16]
        for each in (state, tampered)
    )
    assert (right_one - whole).abs().max() < 1e-9
    assert (wrong - whole).abs().max() > 1e-3


class Recorder(GreedySearch):
    """Greedy search that keeps the log-probabilities it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[np.ndarray] = []

    def step(self, state, log_probs):  # type: ignore[no-untyped-def]
        self.frames.append(log_probs)
        return super().step(state, log_probs)

    def taken(self) -> np.ndarray:
        """The log-probabilities since the last call."""
        frames, self.frames = np.concatenate(self.frames), []
        return frames


def packets(samples: np.ndarray, seed: int) -> Iterator[np.ndarray]:
    draw, start = random.Random(seed), 0
    while start < len(samples):
        size = draw.choice([0, 1, 2, draw.randrange(300), draw.randrange(20000)])
        yield samples[start : start + size]
        start += size


def desynchronised(
    own: Recognizer, heard: list[tuple[np.ndarray, int]], draw: random.Random,
    before: Callable[..., None] = lambda *given: None,
) -> list[Result]:  # fmt: skip
    """The results of streams of a batcher that begin, get samples and end at different times.

    Args:
        heard: samples and their rate.
        before: is called with a session, its next packet and `draw`.
    """
    batcher, sessions = Batcher(own, max_rows=draw.choice([1, 2, 8])), dict[int, BatchedSession]()
    waiting = {
        i: list(packets(samples, draw.randrange(1 << 30))) for i, (samples, _) in enumerate(heard)
    }
    while waiting:
        i = draw.choice(list(waiting))
        if i not in sessions:
            sessions[i] = batcher.start(heard[i][1])
        if waiting[i]:
            before(sessions[i], waiting[i][0], draw)
            sessions[i].accept(waiting[i].pop(0))
        else:
            sessions[i].finish()
            del waiting[i]
        if draw.random() < 0.4:
            batcher.step()
    drain(batcher)
    return [sessions[i].result for i in range(len(heard))]


def drain(batcher: Batcher) -> None:
    """Take all steps that its streams have."""
    while batcher.step():
        pass


def network(samples: np.ndarray, context: Context, **changes: Any) -> Network:
    """A small network that is made for these samples at 16 kHz."""
    feats = feats_of(samples, torch.float64)
    return fitted(tiny_model(**changes), feats, context.chunk_size, context.left)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(
    ("context", "rate"),
    [
        *((Context(4), rate) for rate in (8000, 11025, 48000)),
        (Context(1, 7), 44100), (Context(16, 64), 16000), (FULL, 44100), (Context(1, 16, 2), 16000),
        (Context(16, 16, 4), 16000), (Context(4, 16, 11), 16000),
    ],
)  # fmt: skip
def test_samples_to_text(context: Context, rate: int, dtype: torch.dtype) -> None:
    """From samples at any rate to log-probabilities and text, in packets of any size."""
    samples = speech(3.21, rate=rate)
    model = network(audio.resample(samples, rate), context).to(dtype)
    search = Recorder()
    own = Recognizer(eager(model, context), LETTERS, search)
    expected, whole = own.transcribe(samples, rate), search.taken()
    assert len(expected.text) > 10
    session = own.start(rate)
    for packet in packets(samples, 1):
        assert not session.accept(packet).is_final
    assert timed(session.finish()) == timed(expected)
    assert abs(search.taken() - whole).max() < TOLERANCE[dtype]
