"""The encoder's interface: shapes, state, what it refuses; endless streams; torch.export."""

import pytest
import torch

from asrkit.model import ConformerEncoder, Context, EncoderState, Step
from tests.conftest import tiny_encoder


def test_the_documented_interface() -> None:
    encoder = ConformerEncoder(
        num_mels=80, dim=32, num_heads=4, num_layers=2, ffn_dim=64, kernel_size=15, dropout=0.0,
        position="relative",
    )  # fmt: skip
    state = encoder.init_state(3, 64)
    feats, lengths = torch.randn(3, 130, 80), torch.tensor([130, 97, 2])
    encoded, lengths, state = encoder(feats, lengths, state, 16)
    assert encoded.shape == (3, 33, 32)
    assert lengths.tolist() == [33, 25, 1]
    assert isinstance(state, EncoderState)
    assert state.keys.shape == state.values.shape == (3, 2, 4, 64, 8)
    assert state.conv.shape == (3, 2, 32, 14)
    assert state.feats.shape == (3, 1, 80)
    assert state.hidden.shape == (3, 32, 1, 40)
    assert state.position.tolist() == [48, 48, 48]  # whole chunks


def test_state_keeps_its_shape_and_leaves_the_given_one_alone(encoder: ConformerEncoder) -> None:
    state = encoder.init_state(2, 7)
    before = [field.clone() for field in state]
    feats = torch.randn(2, 48, 20, dtype=torch.float64)
    copy = feats.clone()
    _, _, after = encoder(feats, torch.tensor([48, 48]), state, 4)
    assert [f.shape for f in after] == [f.shape for f in state]
    assert all(torch.equal(a, b) for a, b in zip(state, before, strict=True))
    assert torch.equal(feats, copy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dim": 30, "num_heads": 4}, "multiple of num_heads, got 30, 4"),
        ({"num_mels": 30}, "multiple of 4, got 30"),
        ({"kernel_size": 1}, "at least 2, got 1"),
    ],
)
def test_refusals(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConformerEncoder(**({"num_layers": 1} | change))


def test_gradient_reaches_every_parameter(encoder: ConformerEncoder) -> None:
    feats = torch.randn(2, 64, 20, dtype=torch.float64)
    lengths = torch.tensor([64, 40])
    encoder(feats, lengths, encoder.init_state(2, 8), 4).frames.square().sum().backward()
    missing = [n for n, p in encoder.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    # Keys shift all scores of a query alike: their bias cannot matter, alone of all parameters.
    assert not missing


@pytest.mark.parametrize("kind", ["relative", "absolute_keys", "sinusoidal"])
def test_a_chunk_that_is_not_full_costs_what_it_has(kind: str) -> None:
    """The last one of a stream, or the only one of a short recording."""
    encoder = tiny_encoder(position=kind)
    step, frames = Step(encoder, None, Context(40, 7)), []
    encoder.layers[0].register_forward_hook(lambda _, inputs, __: frames.append(inputs[0].size(1)))
    feats = torch.randn(2, 4 * 40 + 37, 20, dtype=torch.float64)
    length = feats.size(1)
    expected = encoder(feats, torch.tensor([length] * 2), encoder.init_state(2, 7), 40).frames
    outputs, states = [], [step.init_state(2)]
    for part in feats.split(4 * 40, dim=1):
        encoded, lengths, state = step(part, torch.tensor([part.size(1)] * 2), states[-1])
        outputs.append(encoded)
        states.append(state)
    assert frames == [80, 40, 10]
    assert lengths.tolist() == [10, 10]
    assert (torch.cat(outputs, dim=1) - expected).abs().max() < 1e-9
    padded = torch.nn.functional.pad(part, (0, 0, 0, 4 * 40 - 37))
    whole = step(padded, torch.tensor([37, 37]), states[1])
    assert frames == [80, 40, 10, 40]
    assert (whole.frames[:, :10] - outputs[1]).abs().max() < 1e-9
    assert (step(part, torch.tensor([37, 37]), states[0]).frames - outputs[1]).abs().max() > 1e-3


@torch.no_grad()
def test_the_layers_that_are_asked_for_are_returned_and_no_others() -> None:
    """Each is the output of a network that ends there: own frames alone, through the last norm."""
    torch.manual_seed(0)
    encoder, context = tiny_encoder(num_layers=3, after_norm=True).eval(), Context(4, 8, 2)
    encoder.after_norm.weight.copy_(torch.rand(encoder.dim))
    feats, lengths = torch.randn(2, 90, 20, dtype=torch.float64), torch.tensor([90, 61])
    state = encoder.init_state(2, 8)
    output, layers = encoder.run(feats, lengths, state, context, None, [0, 2, 3])
    subsampled, second, last = layers
    assert torch.equal(last, output.frames)
    assert subsampled.shape == second.shape == last.shape
    assert encoder.run(feats, lengths, state, context)[1] == []
    shorter = tiny_encoder(num_layers=2, after_norm=True).eval()
    weights = {name: part for name, part in encoder.state_dict().items() if "layers.2." not in name}
    shorter.load_state_dict(weights)
    ends = shorter.run(feats, lengths, shorter.init_state(2, 8), context)[0].frames
    assert (second - ends).abs().max() < 1e-12
    shorter.after_norm = torch.nn.Identity()  # control
    ends = shorter.run(feats, lengths, shorter.init_state(2, 8), context)[0].frames
    assert (second - ends).abs().max() > 1e-3
