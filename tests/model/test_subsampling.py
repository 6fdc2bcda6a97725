"""Subsamplings with `pad_stages` compute what NeMo's do; long steps are computed in pieces."""

import tarfile

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from asrkit.model.subsampling import KINDS, Conv4Subsampling, Conv8Subsampling, in_pieces
from tests.conftest import FIXTURES, tiny_encoder, toolkit_outputs


def published(module: nn.Module, feats: Tensor) -> Tensor:
    """(B, T, F) -> (B, E, D) as NeMo does it: two zeros before and one after, in time and in
    frequency, at each of two or three stages: frame e of the last sees features up to 4e or 8e."""
    x = feats[:, None]
    for convolution in (each for name, each in module.named_children() if name != "out"):
        x = functional.relu(convolution(functional.pad(x, (2, 1, 2, 1))))
    return module.out(x.transpose(1, 2).flatten(2))


def by_loops(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    """The depthwise stage tap by tap: (S, 1, 3, 3), (S,), (S, T, F) -> (S, T', F')."""
    channels, frames, bins = x.shape
    out = torch.zeros(channels, frames // 2 + 1, bins // 2 + 1, dtype=x.dtype)
    for frame in range(out.size(1)):
        for place in range(out.size(2)):
            total = bias.clone()
            for i in range(3):
                for j in range(3):
                    t, f = 2 * frame - 2 + i, 2 * place - 2 + j
                    if 0 <= t < frames and 0 <= f < bins:
                        total += weight[:, 0, i, j] * x[:, t, f]
            out[:, frame, place] = total
    return out


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


@pytest.mark.parametrize("separable", [False, True])
@pytest.mark.parametrize("frames", [1, 4, 5, 64, 77])
def test_conv4_equals_the_published_computation(separable: bool, frames: int) -> None:
    torch.manual_seed(0)
    module = Conv4Subsampling(20, 12, 6, separable, pad_stages=True).double()
    feats = torch.randn(2, frames, 20, dtype=torch.float64)
    expected, found = published(module, feats), ours(module, feats)
    assert found.shape == expected.shape == (2, (frames + 3 + 3) // 4, 12)
    assert (found - expected).abs().max() < 1e-12


@pytest.fixture
def module() -> Conv8Subsampling:
    torch.manual_seed(0)
    return Conv8Subsampling(20, 12, 6, pad_stages=True).double()


@pytest.mark.parametrize("frames", [1, 8, 9, 64, 77])
def test_equals_the_published_computation(module: Conv8Subsampling, frames: int) -> None:
    feats = torch.randn(2, frames, 20, dtype=torch.float64)
    expected = published(module, feats)
    found = ours(module, feats)
    assert found.shape == expected.shape
    assert (found - expected).abs().max() < 1e-12


def test_a_stage_tap_by_tap(module: Conv8Subsampling) -> None:
    depthwise = module.conv2[0]
    x = torch.randn(6, 13, 11, dtype=torch.float64)
    padded = functional.pad(x, (2, 1, 2, 1))[None]
    expected = by_loops(depthwise.weight, depthwise.bias, x)
    assert (depthwise(padded)[0] - expected).abs().max() < 1e-12


def test_control_biases_before_the_stream_are_noticed(module: Conv8Subsampling) -> None:
    """Stages that are not zero outside the stream differ at its ends, and there alone."""
    feats = torch.randn(1, 80, 20, dtype=torch.float64)
    plain = Conv8Subsampling(20, 12, 6).double()
    plain.load_state_dict(module.state_dict())
    off = (ours(plain, feats) - published(module, feats)).abs().amax(dim=(0, 2))
    assert off[0] > 1e-3
    assert off[2:-1].max() < 1e-12


def test_a_network_of_nemo() -> None:
    """Weights, features and outputs of NeMo's own module."""
    name = "nemo-fastconformer-ctc"
    with tarfile.open(FIXTURES / name / "model.nemo") as archive:
        stored = archive.extractfile("./model_weights.ckpt")
        assert stored is not None
        weights = torch.load(stored, weights_only=True)
    modules = {"conv.0": "conv1", "conv.2": "conv2.0", "conv.3": "conv2.1", "conv.5": "conv3.0",
             "conv.6": "conv3.1", "out": "out"}  # fmt: skip
    module = Conv8Subsampling(80, 64, 32, pad_stages=True)
    module.load_state_dict(
        {
            f"{own}.{part}": weights[f"encoder.pre_encode.{stage}.{part}"]
            for stage, own in modules.items()
            for part in ("weight", "bias")
        }
    )
    arrays = toolkit_outputs(name, "nemo-features.npz")
    for clip in ("speech", "synthetic"):
        feats, expected = (
            torch.from_numpy(arrays[f"{clip}/{name}"]) for name in ("feats", "subsampled")
        )
        with torch.no_grad():
            found = ours(module, feats[None])[0]
        assert found.shape == expected.shape
        assert (found - expected).abs().max() < 1e-5


@pytest.mark.parametrize("kind", [*KINDS, {"kind": "conv8", "pad_stages": True}])
@torch.no_grad()
def test_subsampling_in_pieces(kind: str | dict) -> None:
    """Padded rows; the control forgets the past and what is ahead of a piece."""
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

    def forgets(feats: Tensor, real: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return subsampling(feats, real, *past)

    blind = rate._replace(lookahead=0)
    broken = in_pieces(forgets, blind, feats, real, *past)[0]
    assert broken.shape != whole[0].shape or (broken - whole[0]).abs().max() > 1e-3
