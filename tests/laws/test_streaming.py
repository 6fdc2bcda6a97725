"""Law 1: streaming equals offline, for every chunk size, left context and split into packets."""

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from asrkit import audio
from asrkit.backends import eager
from asrkit.model import FULL_CONTEXT, ConformerEncoder, Context, EncoderState, FrameRate
from asrkit.model.subsampling import split_steps
from asrkit.runtime import Recognizer
from asrkit.search import GreedySearch, PrefixBeamSearch
from asrkit.text import CharTokenizer
from tests.conftest import PADDED, PADDED4, fitted, speech, timed, tiny_encoder, tiny_model

CHUNKS = [1, 4, 16, 25]
LEFT_CONTEXTS = [0, 7, 64]
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


def stream(
    encoder: ConformerEncoder, feats: Tensor, chunk_size: int, left_context: int, chunks_a_step: int
) -> Tensor:
    """Encoder output step by step."""
    state = encoder.init_state(len(feats), left_context)
    outputs = []
    size = encoder.rate.factor * chunk_size * chunks_a_step
    for part, _ in split_steps(feats, size, encoder.rate.lookahead):
        lengths = torch.full((len(feats),), part.size(1))
        encoded, _, state = encoder(part, lengths, state, chunk_size)
        outputs.append(encoded)
    return torch.cat(outputs, dim=1)


def count(length: int, rate: FrameRate) -> int:
    """Encoder frames of a stream: every group that begins, or every one that is seen whole."""
    if rate.lookahead:
        return max(0, length - rate.lookahead) // rate.factor
    return -(-length // rate.factor)


def offline(encoder: ConformerEncoder, feats: Tensor, chunk_size: int, left_context: int) -> Tensor:
    lengths = torch.full((len(feats),), feats.size(1))
    return encoder(feats, lengths, encoder.init_state(len(feats), left_context), chunk_size).frames


@pytest.mark.parametrize(
    ("left_context", "dtype"), [*((M, torch.float64) for M in LEFT_CONTEXTS), (64, torch.float32)]
)
@pytest.mark.parametrize("chunk_size", CHUNKS)
@torch.no_grad()
def test_encoder(chunk_size: int, left_context: int, dtype: torch.dtype) -> None:
    encoder = tiny_encoder().to(dtype)
    feats = torch.randn(2, 313, 20, dtype=dtype)  # ends inside a chunk
    expected = offline(encoder, feats, chunk_size, left_context)
    assert expected.shape == (2, 79, 24)
    for chunks_a_step in (1, 3):
        streamed = stream(encoder, feats, chunk_size, left_context, chunks_a_step)
        assert (streamed - expected).abs().max() < TOLERANCE[dtype]


SEPARABLE = {"kind": "conv4", "separable": True}


@pytest.mark.parametrize(
    "subsampling", [SEPARABLE, "conv4_valid", "conv6_valid", "conv8", PADDED, PADDED4]
)
@pytest.mark.parametrize("chunk_size", [1, 16])
@torch.no_grad()
def test_other_subsamplings(chunk_size: int, subsampling: object) -> None:
    encoder = tiny_encoder(subsampling=subsampling)
    feats = torch.randn(2, 213, 20, dtype=torch.float64)
    for dtype, tolerance in TOLERANCE.items():
        encoder, feats = encoder.to(dtype), feats.to(dtype)
        expected = offline(encoder, feats, chunk_size, 7)
        assert expected.shape == (2, count(213, encoder.rate), 24)
        for chunks_a_step in (1, 3):
            streamed = stream(encoder, feats, chunk_size, 7, chunks_a_step)
            assert (streamed - expected).abs().max() < tolerance


@pytest.mark.parametrize("stage", [0, 1])
def test_control_a_tampered_past_of_either_stage_of_conv8_is_noticed(stage: int) -> None:
    encoder = tiny_encoder(subsampling="conv8")
    feats = torch.randn(1, 128, 20, dtype=torch.float64)
    lengths = torch.tensor([64])
    expected = offline(encoder, feats, 8, 16)[:, 8:]
    _, _, state = encoder(feats[:, :64], lengths, encoder.init_state(1, 16), 8)
    first = encoder.subsampling.widths[0]
    part = slice(first) if stage == 0 else slice(first, None)
    hidden = state.hidden.clone()
    hidden[..., part] = 0.0
    encoded = encoder(feats[:, 64:], lengths, state._replace(hidden=hidden), 8).frames
    assert (encoded - expected).abs().max() > 1e-3


def test_a_separable_convolution_has_fewer_weights() -> None:
    encoder = tiny_encoder(subsampling={"kind": "conv4", "separable": True})
    plain = sum(p.numel() for p in tiny_encoder().parameters())
    assert plain - sum(p.numel() for p in encoder.parameters()) == 9 * 24**2 - 24 * (9 + 24) - 24


@pytest.mark.parametrize("field", EncoderState._fields)
def test_control_a_tampered_past_is_noticed(encoder: ConformerEncoder, field: str) -> None:
    feats = torch.randn(1, 128, 20, dtype=torch.float64)
    lengths = torch.tensor([64])
    expected = offline(encoder, feats, 16, 32)[:, 16:]
    _, _, state = encoder(feats[:, :64], lengths, encoder.init_state(1, 32), 16)
    tampered = state._replace(**{field: torch.zeros_like(getattr(state, field))})
    encoded = encoder(feats[:, 64:], lengths, tampered, 16).frames
    assert (encoded - expected).abs().max() > 1e-3


def test_chunked_and_full_context_differ(encoder: ConformerEncoder) -> None:
    feats = torch.randn(1, 128, 20, dtype=torch.float64)
    full = offline(encoder, feats, FULL_CONTEXT, 0)
    assert (offline(encoder, feats, 16, 32) - full).abs().max() > 1e-3
    assert (offline(encoder, feats, 32, 0) - full).abs().max() < 1e-9  # one chunk is all there is


def test_long_blocks_are_cut_without_a_trace(encoder: ConformerEncoder) -> None:
    """Full context scores at most `max_rows` queries at once."""
    feats = torch.randn(1, 4 * 700, 20, dtype=torch.float64)
    cut = offline(encoder, feats, FULL_CONTEXT, 0)
    for layer in encoder.layers:
        layer.attention.max_rows = 10_000
    assert (offline(encoder, feats, FULL_CONTEXT, 0) - cut).abs().max() < 1e-9


class Recorder(GreedySearch):
    """Greedy search that keeps the log-probabilities it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[Tensor] = []

    def step(self, state, log_probs):  # type: ignore[no-untyped-def]
        self.frames.append(log_probs)
        return super().step(state, log_probs)


def packets(samples: np.ndarray, seed: int) -> Iterator[np.ndarray]:
    draw, start = random.Random(seed), 0
    while start < len(samples):
        size = draw.choice([0, 1, 2, draw.randrange(300), draw.randrange(20000)])
        yield samples[start : start + size]
        start += size


@pytest.mark.parametrize(
    ("chunk_size", "left_context", "rate"),
    [
        *((4, 0, rate) for rate in (8000, 11025, 16000, 44100, 48000)),
        *((*context, rate) for context in ((1, 7), (16, 64), (FULL_CONTEXT, 0))
          for rate in (16000, 44100)),
    ],
)  # fmt: skip
def test_samples_to_text(chunk_size: int, left_context: int, rate: int) -> None:
    """From samples in packets of any size, at any rate, to log-probabilities and text."""
    samples = speech(3.21, rate=rate)
    whole = torch.from_numpy(audio.resample(samples, rate)).double()[None]
    feats = audio.Fbank().double()(whole, whole[:, :0])[0]
    model = fitted(tiny_model(), feats, chunk_size, left_context)
    tokenizer = CharTokenizer(list("abcdefghij "))
    for dtype, tolerance in TOLERANCE.items():
        backend = eager(model.to(dtype), Context(chunk_size, left_context))
        results, log_probs = [], []
        for seed in (None, 1, 2):
            search = Recorder()
            recognizer = Recognizer(backend, tokenizer, search)
            if seed is None:
                results.append(recognizer.transcribe(samples, rate))
            else:
                session = recognizer.start(rate)
                for packet in packets(samples, seed):
                    assert not session.accept(packet).is_final
                results.append(session.finish())
            log_probs.append(torch.cat(search.frames))
        assert len(results[0].text) > 10
        assert timed(results[0]) == timed(results[1]) == timed(results[2])
        for streamed in log_probs[1:]:
            assert (streamed - log_probs[0]).abs().max() < tolerance
        precise = samples.astype(torch.empty(0, dtype=dtype).numpy().dtype)
        batch = recognizer.transcribe_batch([audio.resample(precise, rate)])
        assert timed(batch[0]) == timed(results[0])


class SubWords:
    """A tokenizer: some pieces begin a word, the others go on with one."""

    vocab_size = 12

    def piece(self, token: int) -> str:
        return ("", " a", " b", " c", " d", " e", *"fghijk")[token]


@pytest.mark.parametrize("chunk_size", [1, 4])
def test_words_of_pieces_do_not_depend_on_the_packets(chunk_size: int) -> None:
    """With a beam, which may go on with a word where it had begun another."""
    for seed in range(8):
        samples = speech(2.0, seed=seed)
        feats = audio.Fbank().double()(torch.from_numpy(samples).double()[None], torch.zeros(1, 0))
        model = fitted(tiny_model(), feats[0], chunk_size, 16)
        recognizer = Recognizer(
            eager(model, Context(chunk_size, 16)), SubWords(), PrefixBeamSearch()
        )
        whole, session = recognizer.transcribe(samples), recognizer.start()
        for packet in packets(samples, seed):
            session.accept(packet)
        streamed = session.finish()
        assert timed(streamed) == timed(whole)
        assert whole.text == whole.nbest[0].text
        assert len(whole.words) > 3


def test_control_another_sample_is_another_result() -> None:
    """A shift by one packet of 40 ms, as a lost packet makes it, is not taken for equal."""
    samples = speech(2.0)
    outputs = []
    for start in (0, 640):
        search = Recorder()
        recognizer = Recognizer(
            eager(tiny_model(), Context(4, 16)), CharTokenizer(list("abcdefghij ")), search
        )
        recognizer.transcribe(samples[start:])
        outputs.append(torch.cat(search.frames)[:40])
    assert (outputs[0] - outputs[1]).abs().max() > 1e-2
