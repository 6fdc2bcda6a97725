"""Position encodings: one small class per kind, with one of two interfaces (see `base`).

Most kinds act in the attention of every layer (`Position`); the absolute ones act on the frames
before the first layer (`FramePosition`). The options of a kind are its class's arguments after dim
and num_heads, with their defaults.
"""

from collections.abc import Mapping
from typing import Any

from asrkit.model.positions.absolute_keys import AbsoluteKeysPosition
from asrkit.model.positions.base import FramePosition, NoPosition, Position
from asrkit.model.positions.bias import ALiBiPosition, T5Position
from asrkit.model.positions.compact import CompactPosition
from asrkit.model.positions.complex_order import ComplexPosition
from asrkit.model.positions.deberta import DeBERTaPosition
from asrkit.model.positions.flow import FlowPosition
from asrkit.model.positions.learned import LearnedPosition
from asrkit.model.positions.relative import LearnedRelativePosition, RelativePosition
from asrkit.model.positions.rotary import RotaryPosition
from asrkit.model.positions.shaw import ShawPosition
from asrkit.model.positions.sinusoidal import SinusoidalPosition
from asrkit.model.positions.urpe import URPEPosition
from asrkit.registry import Kinds

KINDS: Kinds[Position | FramePosition] = Kinds(
    "position",
    {
        "relative": RelativePosition,
        "relative_learned": LearnedRelativePosition,
        "shaw": ShawPosition,
        "t5": T5Position,
        "alibi": ALiBiPosition,
        "deberta": DeBERTaPosition,
        "urpe": URPEPosition,
        "rotary": RotaryPosition,
        "compact": CompactPosition,
        "absolute_keys": AbsoluteKeysPosition,
        "sinusoidal": SinusoidalPosition,
        "learned": LearnedPosition,
        "flow": FlowPosition,
        "complex": ComplexPosition,
        "none": NoPosition,
    },
    ("dim", "num_heads"),
)


def build_positions(
    position: str | Mapping[str, Any], dim: int, num_heads: int, num_layers: int
) -> tuple[FramePosition, list[Position]]:
    """Return the encoding of the frames before the first layer, and one for each layer's attention.

    Args:
        position: kind, or a dict of its options and "kind".
    """
    cls, options = KINDS.chosen(position)
    if issubclass(cls, FramePosition):
        return cls(dim, **options), [NoPosition(dim, num_heads) for _ in range(num_layers)]
    return cls.on_frames(dim), [cls(dim, num_heads, **options) for _ in range(num_layers)]
