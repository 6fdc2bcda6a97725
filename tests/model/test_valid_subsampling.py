"""Convolutions without padding, as WeNet has them, for any number of frames."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from asrkit import Batcher, Endpointer
from asrkit.backends.check import difference
from asrkit.backends.pytorch import eager
from asrkit.model import Context
from asrkit.model.subsampling import (
    ValidSubsampling,
    build_subsampling,
    num_valid,
)
from asrkit.runtime import Recognizer, Result
from asrkit.search import GreedySearch
from asrkit.text import CharTokenizer
from tests.conftest import speech, timed, tiny_encoder, tiny_model
from tests.laws.encoder_laws import offline, split_steps, stream
from tests.laws.test_streaming import packets

KINDS = {"conv4_valid": [2, 2], "conv6_valid": [2, 3], "conv8_valid": [2, 2, 2]}  # strides


def published(module: ValidSubsampling, strides: list[int], feats: Tensor) -> Tensor:
    """(B, T, F) -> (B, E, D) in one piece."""
    x = feats[:, None]
    for i, stride in enumerate(strides):
        weight, bias = module.conv[2 * i].weight, module.conv[2 * i].bias
        x = functional.relu(functional.conv2d(x, weight, bias, stride=stride))  # type: ignore[arg-type]
    return module.out(x.transpose(1, 2).flatten(2))


def frames_of(kind: str, count: int) -> int:
    """Encoder frames of so many feature frames, convolution by convolution."""
    for size, stride in zip([3, 5 if kind == "conv6_valid" else 3, 3], KINDS[kind], strict=False):
        count = (count - size) // stride + 1 if count >= size else 0
    return count


@pytest.mark.parametrize("num_mels", [20, 80])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_equals_the_published_computation(kind: str, num_mels: int) -> None:
    """Feature frames in steps of one and of three encoder frames; the last ones make none."""
    torch.manual_seed(0)
    module = build_subsampling({"kind": kind, "channels": 6}, num_mels, 12).double()
    assert isinstance(module, ValidSubsampling)
    factor, lookahead = module.rate.factor, module.rate.lookahead
    feats = torch.randn(2, factor * 9 + lookahead, num_mels, dtype=torch.float64)
    past = feats[:, :0], feats.new_zeros(2, *module.hidden_shape)
    real = torch.ones(feats.shape[:2], dtype=torch.bool)
    expected = published(module, KINDS[kind], feats)
    for frames in (factor, 3 * factor):
        parts = [module(part, real, *past)[0] for part, _ in split_steps(feats, frames, lookahead)]
        assert (torch.cat(parts, dim=1) - expected).abs().max() < 1e-12


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_every_number_of_frames(kind: str) -> None:
    """Those that lack some of what they see are none, as in WeNet."""
    encoder = tiny_encoder(subsampling=kind, num_layers=1)
    feats = torch.randn(1, 40, 20, dtype=torch.float64)
    for count in range(24):
        frames = frames_of(kind, count)
        assert encoder.rate.num_frames(count) == frames
        assert num_valid(torch.tensor([count]), encoder.rate).tolist() == [frames]
        whole = offline(encoder, feats[:, :count], Context(2, 5))
        streamed = stream(encoder, feats[:, :count], Context(2, 5), 1)
        assert whole.shape == streamed.shape == (1, frames, 24)
        assert difference(whole, streamed) < 1e-9


@pytest.fixture
def recognizer() -> Recognizer:
    model = tiny_model(subsampling="conv4_valid", num_layers=1)
    with torch.no_grad():
        model.head.bias[0] += 1.0  # pauses
    return Recognizer(
        eager(model, Context(2, 8)), CharTokenizer(list("abcdefghij ")), GreedySearch(),
        endpointer=Endpointer(80), second_pass=eager(model, Context(8, 8)),
    )  # fmt: skip


def test_recordings_that_are_hardly_long_enough(recognizer: Recognizer) -> None:
    """Samples that make up to 12 feature frames, alone, in packets, saved and in a batch."""
    samples = speech(0.2)
    assert recognizer.transcribe(samples).text
    for count in [0, 1, 399, *range(400 + 160 * 2, 400 + 160 * 12, 160)]:
        expected = recognizer.transcribe(samples[:count])
        session, batcher = recognizer.start(), Batcher(recognizer)
        row = batcher.start()
        for packet in packets(samples[:count], count):
            session = recognizer.restore(session.save())
            session.accept(packet)
            row.accept(packet)
        row.finish()
        while batcher.step():
            pass
        found: list[Result] = [session.finish(), row.result]
        assert [timed(each) for each in found] == [timed(expected)] * 2
