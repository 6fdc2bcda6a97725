"""Laws 1, 2 and 4 for layers whose pasts have other sizes than those of their neighbours."""

import pytest
import torch
from torch import Tensor, nn

from asrkit.export import torchscript
from asrkit.model import ConformerEncoder, Context, EncoderState, EncoderStep
from asrkit.model.attention import ChunkAttention
from asrkit.model.layer import ConformerLayer, FeedForward, LayerPast, LayerStep
from asrkit.model.positions import RotaryPosition
from tests.conftest import tiny_encoder

CONTEXT = Context(4, 7, 2)


class Memoryless(nn.Module):
    """A layer without attention and convolution."""

    def __init__(self, dim: int, ffn_dim: int) -> None:
        super().__init__()
        self.ffn = FeedForward(dim, ffn_dim, 0.0)

    def past_sizes(self, left_context: int) -> list[list[int]]:
        return [[0, left_context, 0], [0, left_context, 0], [0, 0]]

    def table(self, context: Context, like: Tensor) -> Tensor:
        return like.new_zeros([0])

    def forward(
        self, x: Tensor, step: LayerStep, table: Tensor, past: LayerPast
    ) -> tuple[Tensor, LayerPast]:
        return x + self.ffn(x), past


@pytest.fixture
def encoder() -> ConformerEncoder:
    """Layers of 4 heads and 5 taps, of 2 heads and 9 taps, of another encoding, of no past."""
    encoder = tiny_encoder(num_layers=5)
    attention = ChunkAttention(24, 2, 0.0, RotaryPosition(24, 2))
    encoder.layers[1] = ConformerLayer(attention, 24, 32, 9, "layer_norm", "depthwise")
    encoder.layers[3] = Memoryless(24, 48)
    return encoder.double().eval()


def run(encoder: ConformerEncoder, feats: Tensor, state: EncoderState, steps: int) -> Tensor:
    """Encoder frames of whole chunks, in steps of so many chunks."""
    encoded, ahead = [], encoder.rate.ahead_frames(CONTEXT)
    size = steps * encoder.rate.chunk_frames(CONTEXT)
    for first in range(0, feats.size(1) - ahead, size):
        part = feats[:, first : first + size + ahead]
        lengths = torch.full((len(feats),), part.size(1))
        output = encoder.run(part, lengths, state, CONTEXT, None, None)
        encoded.append(output.encoded[:, : size // encoder.rate.factor])
        state = output.state
    return torch.cat(encoded, dim=1)


def step_of(encoder: ConformerEncoder) -> tuple[EncoderStep, Tensor, Tensor]:
    """A step, its features (2, T, F) and their lengths."""
    step, frames = EncoderStep(encoder, CONTEXT).eval(), encoder.rate.step_frames(CONTEXT)
    return step, torch.randn(2, frames, 20, dtype=torch.float64), torch.tensor([frames] * 2)


@torch.no_grad()
def test_streaming_equals_offline(encoder: ConformerEncoder) -> None:
    feats = torch.randn(2, 4 * 4 * 12 + 8, 20, dtype=torch.float64)
    whole = run(encoder, feats, encoder.init_state(2, 7), 12)
    streamed = run(encoder, feats, encoder.init_state(2, 7), 1)
    assert (streamed - whole).abs().max() < 1e-9
    row = run(encoder, feats[1:], encoder.init_state(1, 7), 3)
    assert (row - whole[1:]).abs().max() < 1e-9


@pytest.mark.parametrize("layer", [0, 1, 2])
@torch.no_grad()
def test_control_a_tampered_past_of_a_layer_is_noticed(
    encoder: ConformerEncoder, layer: int
) -> None:
    step, feats, lengths = step_of(encoder)
    state = step(feats, lengths, step.init_state(2)).state
    expected = step(feats, lengths, state).encoded
    for past in (state.keys, state.values, state.conv):
        kept = past[:, layer].clone()
        past[:, layer] = 0.0
        assert (step(feats, lengths, state).encoded - expected).abs().max() > 1e-6
        past[:, layer] = kept


@torch.no_grad()
def test_state_is_as_large_as_the_largest_past(encoder: ConformerEncoder) -> None:
    step, feats, lengths = step_of(encoder)
    state = step(feats, lengths, step.init_state(2)).state
    assert state.keys.shape == state.values.shape == (2, 5, 4, 7, 12)
    assert state.conv.shape == (2, 5, 24, 8)
    assert state.keys[:, 1, :2, -4:].abs().min() > 0.0
    assert not state.keys[:, 1, 2:].any()
    assert not state.keys[:, 0, ..., 6:].any()
    assert not state.conv[:, 0, :, 4:].any()
    assert not state.conv[:, 3].any()


@pytest.mark.parametrize("way", ["torchscript", pytest.param("export", marks=pytest.mark.slow)])
@torch.no_grad()
def test_compiled_steps_equal_eager(encoder: ConformerEncoder, way: str) -> None:
    step, feats, lengths = step_of(encoder)
    state = step.init_state(2)
    if way == "torchscript":
        other = torch.jit.freeze(torchscript.script(step), preserved_attrs=["init_state"])
    else:
        batch = torch.export.Dim("batch", min=1, max=64)
        shapes = ({0: batch}, {0: batch}, EncoderState(*({0: batch} for _ in state)))
        exported = torch.export.export(step, (feats, lengths, state), dynamic_shapes=shapes)
        other = exported.module()
    for rows in (1, 5):  # of a step that was exported with two
        state = theirs = step.init_state(rows)
        for _ in range(4):
            feats = torch.randn(rows, *feats.shape[1:], dtype=torch.float64)
            lengths = torch.full((rows,), feats.size(1))
            expected, _, state = step(feats, lengths, state)
            found, _, theirs = other(feats, lengths, theirs)
            assert (found - expected).abs().max() < 1e-9
            assert all(torch.allclose(a, b, atol=1e-9) for a, b in zip(state, theirs, strict=True))
