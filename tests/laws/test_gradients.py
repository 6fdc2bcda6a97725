"""Law 3: no frame sees beyond its chunk or before its reach, measured by gradients."""

import pytest
import torch
from torch import Tensor

from asrkit.model import FULL_CONTEXT
from asrkit.model.subsampling import KINDS
from tests.conftest import PADDED, PADDED4, STRIDED, tiny_encoder

LAYERS, KERNEL = 3, 5


def touched(chunk_size: int, left_context: int, frame: int, kind: object = "conv4") -> Tensor:
    """Which feature frames (T,) of 100 encoder frames the output of one of these depends on."""
    encoder = tiny_encoder(num_layers=LAYERS, kernel_size=KERNEL, subsampling=kind)
    frames = 100 * encoder.rate.factor + encoder.rate.lookahead
    feats = torch.randn(1, frames, 20, dtype=torch.float64, requires_grad=True)
    state = encoder.init_state(1, left_context)
    encoded = encoder(feats, torch.tensor([frames]), state, chunk_size).frames
    (encoded[0, frame] * torch.randn(24, dtype=torch.float64)).sum().backward()
    assert feats.grad is not None
    return feats.grad[0].abs().amax(dim=1) > 0


def reach(chunk_size: int, left_context: int, frame: int, kind: str) -> tuple[int, int]:
    """First and last feature frame that may matter, layer by layer from the output down.

    The convolution looks K-1 frames back from the attention's output; attention from a frame's
    chunk to M frames before it; the subsampling from frame e to features 4e-3 … 4e+3, without
    padding 4e … 4e+6 (see the kinds), or where three stages follow each other 8e-7 … 8e+7; that of
    Whisper with stride S to S·e-2 … S·e+S.
    """
    factor, before, after = {
        "conv4": (4, 3, 3), "conv8": (8, 7, 7),
        "conv4_valid": (4, 0, 6), "conv6_valid": (6, 0, 10), "conv8_valid": (8, 0, 14),
        "whisper": (2, 2, 2), "whisper by 4": (4, 2, 4), "whisper by 8": (8, 2, 8),
    }[kind]  # fmt: skip
    first = frame
    for _ in range(LAYERS):
        first = max(0, first - (KERNEL - 1))
        first = max(0, first - first % chunk_size - left_context)
    last = frame - frame % chunk_size + chunk_size - 1
    return max(0, factor * first - before), factor * last + after


@pytest.mark.parametrize(
    ("chunk_size", "left_context", "frame"),
    [(1, 0, 50), (1, 3, 99), (4, 0, 40), (4, 7, 43), (16, 0, 79), (16, 5, 64), (25, 10, 99)],
)
@pytest.mark.parametrize("kind", [*KINDS, PADDED, PADDED4, *STRIDED])
def test_reach(kind: object, chunk_size: int, left_context: int, frame: int) -> None:
    frames = touched(chunk_size, left_context, frame, kind).nonzero().flatten()
    name = str(kind["kind"] if isinstance(kind, dict) else kind)
    if isinstance(kind, dict) and "stride" in kind:
        name += f" by {kind['stride']}"
    first, last = reach(chunk_size, left_context, frame, name)
    lead = tiny_encoder(subsampling=kind).rate.lead_frames
    assert frames.min() == max(lead, first)  # no further, and no less: nothing is masked by mistake
    assert frames.max() == last


def test_full_context_sees_everything() -> None:
    assert touched(FULL_CONTEXT, 0, 3).all()


def test_control_more_context_is_seen() -> None:
    """The measurement itself notices one more frame of left context."""
    fewer = touched(4, 7, 60).sum()
    assert touched(4, 8, 60).sum() > fewer
    assert touched(8, 7, 60).sum() > fewer
