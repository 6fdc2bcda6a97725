"""Inference on a CPU computes what the plain functions compute, for long steps too."""

import pytest
import torch
from torch import Tensor

from asrkit.model import FULL_CONTEXT, ConformerEncoder, StepOutput, cpu_inference
from asrkit.model.attention import ChunkAttention
from asrkit.model.positions import KINDS, build_positions, distances
from asrkit.model.subsampling import KINDS as SUBSAMPLINGS
from tests.conftest import tiny_encoder

FRAMES = cpu_inference.SHORTEST + 40  # two tiles of queries, and three pieces
LENGTHS = [4 * FRAMES, 4 * 30 + 1]
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
SERVED = {"relative", "relative_learned", "t5", "alibi", "compact"}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the functions that were called."""
    called: list[str] = []
    for name in ("attend", "subsampled"):
        own = getattr(cpu_inference, name)

        def counted(*inputs, own=own, name=name):  # type: ignore[no-untyped-def]
            called.append(name)
            return own(*inputs)

        monkeypatch.setattr(cpu_inference, name, counted)
    return called


def step(
    encoder: ConformerEncoder, rows: int, left: int = 0, chunk_size: int = FULL_CONTEXT
) -> StepOutput:
    """A later step of streams at different points; the second one ends in it."""
    dtype, draw = encoder.mean.dtype, torch.Generator().manual_seed(0)
    feats = torch.randn(rows, LENGTHS[0], 20, generator=draw, dtype=torch.float64).to(dtype)
    state = encoder.init_state(rows, left)
    past = torch.randn(state.keys.shape, generator=draw, dtype=torch.float64).to(dtype)
    state = state._replace(keys=past, position=torch.tensor([1000, 3][:rows]))
    return encoder(feats, torch.tensor(LENGTHS[:rows]), state, chunk_size)


def apart(encoder: ConformerEncoder, rows: int = 2, left: int = 0) -> float:
    """The largest difference of a step without gradients from the same step with them."""
    expected = step(encoder, rows, left)
    with torch.inference_mode():
        found = step(encoder, rows, left)
    real = torch.arange(expected.frames.size(1)) < expected.lengths[:, None]  # (B, E)
    pairs = [((found.frames - expected.frames) * real.unsqueeze(2))]
    pairs += [one - other for one, other in zip(found.state, expected.state, strict=True)]
    return max(float(each.detach().abs().max()) for each in pairs if each.numel())


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kind", sorted(SERVED))
def test_attention_is_that_by_blocks(kind: str, dtype: torch.dtype, calls: list[str]) -> None:
    """One row of valid keys alone, and padded rows with a past."""
    encoder = tiny_encoder(position=kind, num_layers=2).to(dtype)
    assert apart(encoder, rows=1) < TOLERANCE[dtype]
    assert apart(encoder, rows=2, left=5) < TOLERANCE[dtype]
    assert calls.count("attend") == 4


@pytest.mark.parametrize("broken", ["columns", "valid"])
def test_control_what_is_broken_is_found(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that is read one distance too far; keys after the end of a row."""
    own, encoder = distances.columns, tiny_encoder(num_layers=1)

    def later(table: Tensor, first: int, rows: int, keys: int) -> Tensor:
        return own(table.roll(1, dims=-1), first, rows, keys)

    if broken == "columns":
        monkeypatch.setattr(cpu_inference, "columns", later)
    else:
        monkeypatch.setattr(ChunkAttention, "masked", 0.0)
    assert apart(encoder) > 1e-3


def test_which_attention_is_computed_so(calls: list[str]) -> None:
    """That of one long block, of kinds with a table of distances, in eager inference."""
    encoder = tiny_encoder(num_layers=1).float()
    step(encoder, rows=1)
    with torch.no_grad():
        for kind in KINDS:
            position = build_positions(kind, 24, 4, 1)[1][0]
            queries = torch.zeros(1, 4, 1, FRAMES, 6)
            found = cpu_inference.attends(position, queries, position.table(0, FRAMES, queries))
            assert found == (kind in SERVED), kind
        step(encoder.train(), rows=1)
        step(encoder.eval(), rows=1, left=8, chunk_size=16)
        with torch.autocast("cpu", torch.bfloat16):
            step(encoder, rows=1)
        assert "attend" not in calls
        step(encoder, rows=1)
    assert calls.count("attend") == 1


@pytest.mark.parametrize("kind", [*SUBSAMPLINGS, {"kind": "conv8", "pad_stages": True}])
@torch.no_grad()
def test_subsampling_in_pieces(kind: str | dict, calls: list[str]) -> None:
    """Padded rows; the control forgets the past and what is ahead of a piece."""
    subsampling = tiny_encoder(subsampling=kind, num_layers=1, num_mels=40).subsampling
    rate, draw = subsampling.rate, torch.Generator().manual_seed(0)
    frames = 70 * rate.factor + rate.lookahead
    feats = torch.randn(5, frames, 40, generator=draw, dtype=torch.float64)
    real = torch.arange(frames) < torch.tensor([frames, 300, 17, 1, 0])[:, None]
    past = subsampling.init_state(5, feats)
    whole, pieces = subsampling(feats, real, *past), subsampling.run(feats, real, *past)
    assert calls == ["subsampled"]
    for found, expected in zip(pieces, whole, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)

    def forgets(feats: Tensor, real: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return subsampling(feats, real, *past)

    blind = rate._replace(lookahead=0)
    broken = cpu_inference.subsampled(forgets, blind, feats, real, *past)[0]
    assert broken.shape != whole[0].shape or (broken - whole[0]).abs().max() > 1e-3
