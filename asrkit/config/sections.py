"""Sections of a configuration that choose a class by `kind`; other keys are its arguments."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar, Union

from pydantic import BaseModel, BeforeValidator, Field, create_model

from asrkit.registry import Kinds

# Not strict, because YAML reads 1e-3 as a string.
Number = Annotated[float, Field(strict=False, allow_inf_nan=False)]

# Integer options of a kind are bounded, so that no file can make tables that exhaust the memory.
Few = Annotated[int, Field(ge=1, le=100_000)]
BOUNDED: dict[Any, Any] = {int: Few, int | None: Few | None, float: Number}


AnyKind = TypeVar("AnyKind", bound=BaseModel)


def sections_of(base: type[AnyKind], kinds: Kinds[Any]) -> dict[str, type[AnyKind]]:
    """Return a model class of the section for each kind."""
    sections = {}
    for kind in kinds:
        fields: dict[str, Any] = {
            name: (BOUNDED.get(option.annotation, option.annotation), option.default)
            for name, option in kinds.options(kind).items()
        }
        fields["kind"] = (Literal[kind], kind)
        sections[kind] = create_model(kind, __base__=base, **fields)
    return sections


def any_of(sections: Iterable[type[BaseModel]], usual: str | None = None) -> Any:
    """Return the type of a value that is one of these sections, or only the name of a kind.

    Args:
        sections: sections, each with its own literal `kind`.
        usual: kind for options without a kind; None rejects such options.
    """

    def with_kind(value: Any) -> Any:
        if isinstance(value, dict) and usual is not None:
            return {"kind": usual, **value}
        return {"kind": value} if isinstance(value, str) else value

    return Annotated[
        Union[tuple(sections)],  # noqa: UP007
        Field(discriminator="kind"),
        BeforeValidator(with_kind),
    ]
