"""Position encodings: one small class a kind, behind two seams (see `base`).

Most kinds act in the attention of every layer (`Position`); the absolute ones act on the frames
before the first layer (`FramePosition`). The options of a kind are its class's arguments after
dim and num_heads, with the defaults that stand there.
"""

import inspect
from collections.abc import Mapping
from typing import Any

from asrkit import kinds
from asrkit.model.positions.base import FramePosition, Position
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

KINDS: dict[str, type[Position] | type[FramePosition]] = {
    "relative": RelativePosition,
    "relative_learned": LearnedRelativePosition,
    "shaw": ShawPosition,
    "t5": T5Position,
    "alibi": ALiBiPosition,
    "deberta": DeBERTaPosition,
    "urpe": URPEPosition,
    "rotary": RotaryPosition,
    "compact": CompactPosition,
    "sinusoidal": SinusoidalPosition,
    "learned": LearnedPosition,
    "flow": FlowPosition,
    "complex": ComplexPosition,
    "none": Position,
}


def options(kind: str) -> dict[str, inspect.Parameter]:
    """The options of a kind, with their types and defaults."""
    return kinds.options(KINDS[kind], ("dim", "num_heads"))


def refusal(kind: object) -> str:
    """What to say of a kind that is not one."""
    return kinds.refusal(kind, KINDS)


def build_positions(
    position: str | Mapping[str, Any], dim: int, num_heads: int, num_layers: int
) -> tuple[FramePosition, list[Position]]:
    """What acts on the frames, and what acts in each layer.

    Args:
        position: a kind, or its options with "kind" among them.

    Raises:
        ValueError: for a kind or an option that is not one, or numbers that do not fit.
    """
    given = dict(position) if isinstance(position, Mapping) else {"kind": position}
    if "kind" not in given:
        raise ValueError(f"position needs a 'kind' beside {', '.join(given) or 'nothing'}")
    kind = given.pop("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"position {refusal(kind)}")
    unknown = given.keys() - options(kind).keys()
    if unknown:
        known = ", ".join(options(kind)) or "none"
        raise ValueError(f"position {kind!r} has no option {min(unknown)!r}; its options: {known}")
    cls = KINDS[kind]
    if issubclass(cls, FramePosition):
        return cls(dim, **given), [Position(dim, num_heads) for _ in range(num_layers)]
    return FramePosition(dim), [cls(dim, num_heads, **given) for _ in range(num_layers)]
