"""Every law holds for every shape of the encoder's parts beside the position encoding."""

from typing import Any

import pytest
import torch

from asrkit.backends.check import difference
from tests.laws.position_laws import LAWS, Law, draw, encoder
from tests.laws.test_streaming import offline

SHAPES: list[dict[str, Any]] = [
    {"conv_norm": "affine"}, {"conv_padding": "pointwise"}, {"after_norm": True},
]  # fmt: skip
TOGETHER = {name: value for shape in SHAPES for name, value in shape.items()}
TRANSFORMER = {"layer": "transformer"}
COSTLY = ("streaming, float32", "samples to text", "torch.export")


@pytest.mark.parametrize(
    ("shape", "law"),
    [
        pytest.param(
            shape,
            law,
            id=f"{' '.join(shape)}-{law.name}",
            marks=[pytest.mark.slow] if law.name == "torch.export" else [],
        )
        for law in LAWS
        for shape in ([TOGETHER, TRANSFORMER] if law.name in COSTLY else [*SHAPES, TRANSFORMER])
        # Without a convolution, frames reach less far back than the law says.
        if (law.name, shape) != ("reach", TRANSFORMER)
    ],
)
def test_law(shape: dict[str, Any], law: Law) -> None:
    torch.manual_seed(3)
    assert law.measure(shape) <= law.bound


@pytest.mark.parametrize("shape", [*SHAPES, TRANSFORMER], ids=str)
@torch.no_grad()
def test_control_every_shape_matters(shape: dict[str, Any]) -> None:
    """With the same weights where both have them, none is the encoder as it comes."""
    plain, other, feats = encoder({}), encoder(shape), draw(1, 100)
    weights = plain.state_dict()
    known = {k: v for k, v in other.state_dict().items() if k in weights}
    plain.load_state_dict(weights | known)
    assert difference(offline(plain, feats, 4, 7), offline(other, feats, 4, 7)) > 1e-2
