"""A layer, its convolution module before its first frame, and a BatchNorm in it after training."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from asrkit.context import Context
from asrkit.model.attention import LayerStep
from asrkit.model.layer import CausalConvolution, ConformerLayer
from tests.conftest import tiny_encoder

DIM, KERNEL = 6, 5


def module(norm: str = "layer_norm", padding: str = "depthwise") -> CausalConvolution:
    torch.manual_seed(0)
    return CausalConvolution(DIM, KERNEL, 0.0, norm, padding).double().eval()


def step(module: CausalConvolution, x: Tensor) -> Tensor:
    return module(x, x.new_zeros(len(x), DIM, KERNEL - 1))[0]


@pytest.fixture
def x() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(2, 9, DIM, dtype=torch.float64)


def by_layers(module: CausalConvolution, x: Tensor, padded: str) -> Tensor:
    """With zeros before one of the layers, as they stand in the published networks."""
    hidden = module.norm(x)
    if padded == "pointwise":
        hidden = functional.pad(hidden, (0, 0, KERNEL - 1, 0))
    hidden = functional.glu(module.expand(hidden), dim=2).transpose(1, 2)
    if padded == "depthwise":
        hidden = functional.pad(hidden, (KERNEL - 1, 0))
    hidden = module.depthwise_norm(module.depthwise(hidden).transpose(1, 2))
    return module.project(functional.silu(hidden))


@pytest.mark.parametrize("padding", ["depthwise", "pointwise"])
@torch.no_grad()
def test_zeros_before_a_layer(padding: str, x: Tensor) -> None:
    found = step(module(padding=padding), x)
    assert (found - by_layers(module(), x, padding)).abs().max() < 1e-12
    other = "pointwise" if padding == "depthwise" else "depthwise"
    off = (found - by_layers(module(), x, other)).abs().amax(dim=(0, 2))
    assert off[: KERNEL - 1].min() > 1e-4  # control
    assert off[KERNEL - 1 :].max() < 1e-12


@torch.no_grad()
def test_affine_is_a_trained_batch_norm(x: Tensor) -> None:
    norm = nn.BatchNorm1d(DIM).double().eval()
    for values in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
        values.uniform_(0.5, 2.0)  # type: ignore[union-attr]
    found, expected = module("affine"), module()
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()  # type: ignore[operator]
    found.depthwise_norm.weight.copy_(scale)  # type: ignore[operator]
    found.depthwise_norm.bias.copy_(norm.bias - norm.running_mean * scale)  # type: ignore[operator]
    expected.depthwise_norm = nn.Sequential(Turned(), norm, Turned())
    assert (step(found, x) - step(expected, x)).abs().max() < 1e-12
    norm.running_mean += 0.1  # control
    assert (step(found, x) - step(expected, x)).abs().max() > 1e-3


class Turned(nn.Module):
    """(B, T, D) -> (B, D, T), and back."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


@torch.no_grad()
def test_a_layer_is_half_of_each_feed_forward_around_attention_and_convolution() -> None:
    """Gulati et al. 2020, 2.4, for one block."""
    encoder = tiny_encoder()
    layer = encoder.layers[0]
    assert isinstance(layer, ConformerLayer)
    x = torch.randn(2, 7, encoder.dim, dtype=torch.float64)
    past = layer.init_state(2, 0, x)
    table = layer.attention.table(Context(7), x)
    valid, vectors = torch.ones(2, 1, 1, 1, 7, dtype=torch.bool), x[:, :, :0]
    shared = LayerStep(valid, vectors, 0)
    found, _ = layer(x, shared, table, past)
    x = x + layer.ffn1(x) / 2
    normed = layer.attention_norm(x)
    x = x + layer.attention(normed, shared, table, past.keys, past.values)[0]
    x = x + layer.convolution(x, past.conv)[0]
    x = x + layer.ffn2(x) / 2
    assert (found - layer.norm(x)).abs().max() < 1e-12
