"""Sections that choose a class by `kind`; other keys are its arguments."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union

from pydantic import BeforeValidator, Field, create_model, model_validator

from asrkit import audio, search
from asrkit.config.bounds import Number, Section
from asrkit.model import heads, positions, subsampling
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


AnyKind = TypeVar("AnyKind", bound=KindConfig)


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


def any_of(sections: dict[str, type[AnyKind]], usual: str) -> Any:
    """Return the type of a value that is one of these sections, or only the name of a kind.

    Args:
        usual: kind of options without a kind.
    """

    def with_kind(value: Any) -> Any:
        if isinstance(value, dict):
            return {"kind": usual, **value}
        return {"kind": value} if isinstance(value, str) else value

    return Annotated[
        Union[tuple(sections.values())],  # noqa: UP007
        Field(discriminator="kind"),
        BeforeValidator(with_kind),
    ]


KINDS: dict[tuple[str, ...], Kinds[Any]] = {
    ("model", "position"): positions.KINDS,
    ("model", "subsampling"): subsampling.KINDS,
    ("model", "frontend"): audio.KINDS,
    ("model", "head"): heads.KINDS,
    ("search",): search.KINDS,
}
POSITIONS = sections_of(KindConfig, positions.KINDS)
SUBSAMPLINGS = sections_of(KindConfig, subsampling.KINDS)
FRONTENDS = sections_of(KindConfig, audio.KINDS)
HEADS = sections_of(KindConfig, heads.KINDS)
SEARCHES = sections_of(SearchConfig, search.KINDS)
if TYPE_CHECKING:
    AnyPosition = KindConfig
    AnySubsampling = KindConfig
    AnyFrontend = KindConfig
    AnyHead = KindConfig
    AnySearch = SearchConfig
else:
    AnyPosition = any_of(POSITIONS, "relative")
    AnySubsampling = any_of(SUBSAMPLINGS, "conv4")
    AnyFrontend = any_of(FRONTENDS, "kaldi")
    AnyHead = any_of(HEADS, "ctc")
    AnySearch = any_of(SEARCHES, "greedy")
