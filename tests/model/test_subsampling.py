"""Subsamplings compute what NeMo's and WeNet's do, for any number of frames and in pieces."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from asrkit import Batcher, Endpointer
from asrkit.backends.check import difference
from asrkit.backends.pytorch import eager
from asrkit.context import rate_of
from asrkit.model import Context
from asrkit.model.subsampling import (
    KINDS,
    Conv4Subsampling,
    Conv8Subsampling,
    ValidSubsampling,
    build_subsampling,
    in_pieces,
    num_valid,
)
from asrkit.runtime import Recognizer, Result
from asrkit.search import GreedySearch
from asrkit.text import CharTokenizer
from tests.conftest import speech, timed, tiny_encoder, tiny_model
from tests.laws.encoder_laws import offline, split_steps, stream
from tests.laws.test_streaming import packets


def published(module: nn.Module, feats: Tensor) -> Tensor:
    """(B, T, F) -> (B, E, D) as NeMo does it: two zeros before and one after, in time and in
    frequency, at each of two or three stages: frame e of the last sees features up to 4e or 8e."""
    x = feats[:, None]
    for convolution in (each for name, each in module.named_children() if name != "out"):
        x = functional.relu(convolution(functional.pad(x, (2, 1, 2, 1))))
    return module.out(x.transpose(1, 2).flatten(2))


def ours(module: Conv4Subsampling | Conv8Subsampling, feats: Tensor) -> Tensor:
    """The module over the stream with the frames before it, which the encoder makes zero."""
    factor = module.rate.factor
    before, length = factor - 1, factor - 1 + feats.size(1)
    frames = -(-length // factor)
    padded = functional.pad(feats, (0, 0, before, factor * frames - length))
    numbers = torch.arange(factor * frames).expand(len(feats), -1)
    hidden = feats.new_zeros([len(feats), *module.hidden_shape])
    real = (numbers >= before) & (numbers < length)
    out, _, _ = module(padded, real, feats.new_zeros(len(feats), 1, feats.size(2)), hidden)
    return out


@pytest.mark.parametrize("make", [
    lambda: Conv4Subsampling(20, 12, 6, False, pad_stages=True),
    lambda: Conv4Subsampling(20, 12, 6, True, pad_stages=True),
    lambda: Conv8Subsampling(20, 12, 6, pad_stages=True),
])  # fmt: skip
@pytest.mark.parametrize("frames", [1, 4, 5, 8, 9, 64, 77])
def test_equals_the_published_computation(
    make: Callable[[], Conv4Subsampling | Conv8Subsampling], frames: int
) -> None:
    """tests/interop has the outputs of NeMo's own module."""
    torch.manual_seed(0)
    module, feats = make().double(), torch.randn(2, frames, 20, dtype=torch.float64)
    expected, found = published(module, feats), ours(module, feats)
    assert found.shape == expected.shape
    assert (found - expected).abs().max() < 1e-12


def test_control_biases_before_the_stream_are_noticed() -> None:
    """Stages that are not zero outside the stream differ at its ends, and there alone."""
    feats = torch.randn(1, 80, 20, dtype=torch.float64)
    module = Conv8Subsampling(20, 12, 6, pad_stages=True).double()
    plain = Conv8Subsampling(20, 12, 6).double()
    plain.load_state_dict(module.state_dict())
    off = (ours(plain, feats) - published(module, feats)).abs().amax(dim=(0, 2))
    assert off[0] > 1e-3
    assert off[2:-1].max() < 1e-12


@pytest.mark.parametrize("kind", [*KINDS, {"kind": "conv8", "pad_stages": True}])
def test_subsampling_in_pieces(kind: str | dict) -> None:
    """Padded rows, and gradients; the control forgets the past and what is ahead of a piece."""
    subsampling = tiny_encoder(subsampling=kind, num_layers=1, num_mels=40).subsampling
    rate, draw = subsampling.rate, torch.Generator().manual_seed(0)
    frames = 70 * rate.factor + rate.lookahead
    feats = torch.randn(5, frames, 40, generator=draw, dtype=torch.float64)
    real = torch.arange(frames) < torch.tensor([frames, 300, 17, 1, 0])[:, None]
    past = subsampling.init_state(5, feats)
    whole = subsampling(feats, real, *past)
    calls: list[nn.Module] = []
    subsampling.register_forward_hook(lambda module, *_: calls.append(module))
    pieces = subsampling.run(feats, real, *past)
    assert len(calls) == 5
    for piece, expected in zip(pieces, whole, strict=True):
        torch.testing.assert_close(piece, expected, rtol=0, atol=1e-9)
    gradients = gradients_of(pieces[0], subsampling)
    for gradient, expected in zip(gradients, gradients_of(whole[0], subsampling), strict=True):
        torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-9)

    def forgets(feats: Tensor, real: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return subsampling(feats, real, *past)

    blind = rate._replace(lookahead=0)
    broken = in_pieces(forgets, blind, feats, real, *past)[0]
    assert broken.shape != whole[0].shape or (broken - whole[0]).abs().max() > 1e-3


def gradients_of(frames: Tensor, module: nn.Module) -> tuple[Tensor, ...]:
    """Gradients of the frames' squares, by each parameter."""
    return torch.autograd.grad(frames.square().mean(), list(module.parameters()))


@pytest.mark.parametrize("kind", [
    *({"kind": name} for name in KINDS), {"kind": "whisper", "stride": 8},
    {"kind": "conv4", "pad_stages": True}, {"kind": "conv8", "pad_stages": True, "channels": 8},
])  # fmt: skip
def test_the_rate_is_known_without_the_network(kind: dict) -> None:
    assert rate_of(**kind) == build_subsampling(kind, 80, 16).rate


STRIDES = {"conv4_valid": [2, 2], "conv6_valid": [2, 3], "conv8_valid": [2, 2, 2]}  # strides


def without_padding(module: ValidSubsampling, strides: list[int], feats: Tensor) -> Tensor:
    """(B, T, F) -> (B, E, D) in one piece."""
    x = feats[:, None]
    for i, stride in enumerate(strides):
        weight, bias = module.conv[2 * i].weight, module.conv[2 * i].bias
        x = functional.relu(functional.conv2d(x, weight, bias, stride=stride))  # type: ignore[arg-type]
    return module.out(x.transpose(1, 2).flatten(2))


def frames_of(kind: str, count: int) -> int:
    """Encoder frames of so many feature frames, convolution by convolution."""
    for size, stride in zip([3, 5 if kind == "conv6_valid" else 3, 3], STRIDES[kind], strict=False):
        count = (count - size) // stride + 1 if count >= size else 0
    return count


@pytest.mark.parametrize("num_mels", [20, 80])
@pytest.mark.parametrize("kind", STRIDES)
@torch.no_grad()
def test_without_padding_equals_the_published_computation(kind: str, num_mels: int) -> None:
    """Feature frames in steps of one and of three encoder frames; the last ones make none."""
    torch.manual_seed(0)
    module = build_subsampling({"kind": kind, "channels": 6}, num_mels, 12).double()
    assert isinstance(module, ValidSubsampling)
    factor, lookahead = module.rate.factor, module.rate.lookahead
    feats = torch.randn(2, factor * 9 + lookahead, num_mels, dtype=torch.float64)
    past = feats[:, :0], feats.new_zeros(2, *module.hidden_shape)
    real = torch.ones(feats.shape[:2], dtype=torch.bool)
    expected = without_padding(module, STRIDES[kind], feats)
    for frames in (factor, 3 * factor):
        parts = [module(part, real, *past)[0] for part, _ in split_steps(feats, frames, lookahead)]
        assert (torch.cat(parts, dim=1) - expected).abs().max() < 1e-12


@pytest.mark.parametrize("kind", STRIDES)
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
