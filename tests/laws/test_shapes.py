"""Every law holds for every shape of the encoder's parts beside the position encoding."""

from typing import Any

import pytest
import torch

from asrkit.backends.check import difference
from asrkit.model import Context
from asrkit.model.subsampling import KINDS
from tests.conftest import PADDED, PADDED4, STRIDED
from tests.laws.encoder_laws import LAWS, Law, draw, encoder, offline

SHAPES: list[dict[str, Any]] = [
    {"conv_norm": "affine"}, {"conv_padding": "pointwise"}, {"after_norm": True},
]  # fmt: skip
TOGETHER = {name: value for shape in SHAPES for name, value in shape.items()}
TRANSFORMER = {"layer": "transformer"}
SEPARABLE = {"kind": "conv4", "separable": True}
SUBSAMPLINGS = [
    {"subsampling": kind} for kind in (*sorted(KINDS), SEPARABLE, PADDED, PADDED4, *STRIDED)
]
# test_cpu_training has the gradients of a subsampling, test_export its files.
OF_SUBSAMPLING = ("streaming, float64", "streaming, float32", "rows of a batch", "reach",
                  "half precision", "padded rows")  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "law"),
    [
        pytest.param(shape, law, id=f"{' '.join(map(str, (*shape, *shape.values())))}-{law.name}")
        for law in LAWS
        for shape in [
            *([TOGETHER] if law.name == "streaming, float32" else SHAPES),
            TRANSFORMER,
            *(SUBSAMPLINGS if law.name in OF_SUBSAMPLING else []),
        ]
    ],
)
def test_law(shape: dict[str, Any], law: Law) -> None:
    torch.manual_seed(3)
    assert law.measure(shape) <= law.bound


@pytest.mark.parametrize("shape", [*SHAPES, TRANSFORMER, *SUBSAMPLINGS[1:]], ids=str)
@torch.no_grad()
def test_control_every_shape_matters(shape: dict[str, Any]) -> None:
    """With the same weights where both have them, none is the encoder as it comes."""
    plain, other, feats = encoder({}), encoder(shape), draw(1, 100)
    weights = plain.state_dict()
    known = {
        name: value
        for name, value in other.state_dict().items()
        if name in weights and value.shape == weights[name].shape
    }
    plain.load_state_dict(weights | known)
    outputs = [offline(each, feats, Context(4, 7)) for each in (plain, other)]
    assert outputs[0].shape != outputs[1].shape or difference(*outputs) > 1e-2
