"""Subsamplings with `pad_stages` compute what NeMo's do; long steps are computed in pieces."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from asrkit.context import rate_of
from asrkit.model.subsampling import (
    KINDS,
    Conv4Subsampling,
    Conv8Subsampling,
    build_subsampling,
    in_pieces,
)
from tests.conftest import tiny_encoder


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
