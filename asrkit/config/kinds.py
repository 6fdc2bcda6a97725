"""Sections that choose a class by `kind`; other keys are its arguments."""

from typing import Annotated, Any, Literal, Union

from pydantic import BeforeValidator, Field, create_model, model_validator
from pydantic_core import CoreSchema

from asrkit import audio, search
from asrkit.config.bounds import Number, Section
from asrkit.registry import Kinds

# Integer options of a kind are bounded, so that no file can make tables that exhaust the memory.
Few = Annotated[int, Field(ge=1, le=100_000)]
BOUNDED: dict[Any, Any] = {int: Few, int | None: Few | None, float: Number}


class KindConfig(Section):
    """A section that chooses a class by its kind; other keys are arguments of the class."""

    kind: str


class SearchConfig(KindConfig):
    """A search."""

    @model_validator(mode="after")
    def _fits(self) -> "SearchConfig":
        search.build_search(self.model_dump())  # the search checks its own options
        return self


def section_of(kinds: Kinds[Any], kind: str, base: type[KindConfig]) -> type[KindConfig]:
    """Return a kind's section, with the options and defaults of its class."""
    fields: dict[str, Any] = {
        name: (BOUNDED.get(option.annotation, option.annotation), option.default)
        for name, option in kinds.options(kind).items()
    }
    fields["kind"] = (Literal[kind], kind)
    return create_model(kind, __base__=base, **fields)


class OneOf:
    """Metadata of a field: its value is a section of one of the kinds, or only a kind's name.

    Args:
        usual: kind of options without a kind.
    """

    def __init__(self, base: type[KindConfig], kinds: Kinds[Any], usual: str) -> None:
        self.sections = [section_of(kinds, kind, base) for kind in kinds]
        self.kinds, self.usual = kinds, usual

    def __get_pydantic_core_schema__(self, base: object, handler: Any) -> CoreSchema:
        one: Any = Annotated[
            Union[tuple(self.sections)],  # noqa: UP007
            Field(discriminator="kind"),
            BeforeValidator(self.with_kind),
        ]
        return handler.generate_schema(one)

    def with_kind(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {"kind": self.usual, **value}
        return {"kind": value} if isinstance(value, str) else value


def usually(kind: str) -> Any:
    """Return the default of a field that is a section of this kind."""
    return Field(default={"kind": kind}, validate_default=True)


AnyFrontend = Annotated[KindConfig, OneOf(KindConfig, audio.KINDS, "kaldi")]
AnySearch = Annotated[SearchConfig, OneOf(SearchConfig, search.KINDS, "greedy")]
