"""Law 2: a row in a padded batch equals the row alone, wherever its stream stands."""

import pytest
import torch
from torch import Tensor

from asrkit.backends.check import difference
from asrkit.model import FULL_CONTEXT, ConformerEncoder, EncoderState
from tests.conftest import PADDED, PADDED4, tiny_encoder
from tests.laws.test_streaming import count


@pytest.fixture(params=["conv4", "conv4_valid", "conv8", PADDED, PADDED4])
def encoder(request: pytest.FixtureRequest) -> ConformerEncoder:
    return tiny_encoder(subsampling=request.param)


@pytest.mark.parametrize(
    ("chunk_size", "left_context"), [(1, 0), (4, 7), (16, 64), (25, 3), (FULL_CONTEXT, 0)]
)
def test_rows_of_a_padded_batch(
    encoder: ConformerEncoder, chunk_size: int, left_context: int
) -> None:
    """Rows of all lengths: whole, part of a chunk, one frame, none; padding of any value."""
    lengths = torch.tensor([213, 200, 64, 5, 1, 0])
    feats = torch.randn(6, 213, 20, dtype=torch.float64)
    for row, length in zip(feats, lengths.tolist(), strict=True):
        row[length:] = 1e4
    state = encoder.init_state(6, left_context)
    encoded, encoded_lengths, _ = encoder(feats, lengths, state, chunk_size)
    assert encoded_lengths.tolist() == [count(length, encoder.rate) for length in lengths.tolist()]
    assert torch.isfinite(encoded).all()
    for row, length in enumerate(lengths.tolist()):
        alone = encoder(
            feats[row : row + 1, :length], lengths[row : row + 1],
            encoder.init_state(1, left_context), chunk_size,
        )  # fmt: skip
        frames = int(alone.lengths)
        assert alone.frames.shape[1] == frames
        if frames:
            assert (alone.frames[0] - encoded[row, :frames]).abs().max() < 1e-9


def join(states: list[EncoderState]) -> EncoderState:
    return EncoderState(*map(torch.cat, zip(*states, strict=True)))


@torch.no_grad()
def test_streams_at_different_positions(encoder: ConformerEncoder) -> None:
    """Three streams that began at different times step together as they would alone."""
    feats, window = torch.randn(3, 5 * 64, 20, dtype=torch.float64), 64 + encoder.rate.lookahead
    chunk, chunk_size = torch.tensor([window]), 64 // encoder.rate.factor

    def part(row: int, number: int) -> Tensor:
        return feats[row : row + 1, 64 * number : 64 * number + window]

    def step(row: int, number: int, state: EncoderState):  # type: ignore[no-untyped-def]
        return encoder(part(row, number), chunk, state, chunk_size)

    states = []
    for row in range(3):  # row r has taken r chunks
        state = encoder.init_state(1, 24)
        for number in range(row):
            state = step(row, number, state).state
        states.append(state)
    together = torch.cat([part(row, row) for row in range(3)])
    encoded, _, joined = encoder(together, chunk.repeat(3), join(states), chunk_size)
    for row in range(3):
        alone = step(row, row, states[row])
        assert (alone.frames[0] - encoded[row]).abs().max() < 1e-9
        for ours, theirs in zip(joined, alone.state, strict=True):
            assert difference(ours[row], theirs[0]) < 1e-9


def test_control_a_wrong_position_is_noticed(encoder: ConformerEncoder) -> None:
    """A stream that claims to stand elsewhere lets the empty past in."""
    feats = torch.randn(1, 64, 20, dtype=torch.float64)
    state = encoder.init_state(1, 24)
    right = encoder(feats, torch.tensor([64]), state, 16).frames
    wrong = encoder(feats, torch.tensor([64]), state._replace(position=state.position + 16), 16)
    assert (right - wrong.frames).abs().max() > 1e-3


def test_control_wrong_lengths_are_noticed(encoder: ConformerEncoder) -> None:
    feats = torch.randn(1, 64, 20, dtype=torch.float64)
    short = encoder(feats, torch.tensor([40]), encoder.init_state(1, 0), 16).frames[:, :5]
    whole = encoder(feats, torch.tensor([64]), encoder.init_state(1, 0), 16).frames[:, :5]
    assert (short - whole).abs().max() > 1e-3
