"""Sections of a configuration whose options are the arguments of a class."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar, Union

from pydantic import BaseModel, BeforeValidator, Field, create_model

from asrkit.kinds import Kinds

# YAML reads 1e-3 as a string: numbers with a fraction may be written so.
Number = Annotated[float, Field(strict=False, allow_inf_nan=False)]

# Of a kind's options: no table that a file asks for may fill the memory.
Few = Annotated[int, Field(ge=1, le=100_000)]
BOUNDED: dict[Any, Any] = {int: Few, int | None: Few | None, float: Number}


AnyKind = TypeVar("AnyKind", bound=BaseModel)


def sections_of(base: type[AnyKind], kinds: Kinds[Any]) -> dict[str, type[AnyKind]]:
    """The section of each kind."""
    sections = {}
    for kind in kinds:
        fields: dict[str, Any] = {
            name: (BOUNDED.get(option.annotation, option.annotation), option.default)
            for name, option in kinds.options(kind).items()
        }
        fields["kind"] = (Literal[kind], kind)
        sections[kind] = create_model(kind, __base__=base, **fields)
    return sections


def any_of(sections: Iterable[type[BaseModel]]) -> Any:
    """One of these sections, by its kind; a kind may stand alone."""
    return Annotated[
        Union[tuple(sections)],  # noqa: UP007
        Field(discriminator="kind"),
        BeforeValidator(lambda value: {"kind": value} if isinstance(value, str) else value),
    ]
