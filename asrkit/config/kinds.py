"""Sections that choose a class: of positions, subsamplings, frontends, heads, searches."""

from typing import TYPE_CHECKING, Any

from pydantic import model_validator

from asrkit import audio, search
from asrkit.config.bounds import Section
from asrkit.config.sections import any_of, sections_of
from asrkit.model import heads, positions, subsampling
from asrkit.registry import Kinds


class KindConfig(Section):
    """A section that chooses a class by its kind; other keys are arguments of the class."""

    kind: str


class PositionConfig(KindConfig):
    """A position encoding."""


class SubsamplingConfig(KindConfig):
    """A subsampling: feature frames to encoder frames."""


class HeadConfig(KindConfig):
    """A head: encoder frames to labels."""


class FrontendConfig(KindConfig):
    """A frontend: samples to features."""


class SearchConfig(KindConfig):
    """A search."""

    @model_validator(mode="after")
    def _fits(self) -> "SearchConfig":
        search.build_search(self.model_dump())  # the search checks its own options
        return self


KINDS: dict[tuple[str, ...], Kinds[Any]] = {
    ("model", "position"): positions.KINDS,
    ("model", "subsampling"): subsampling.KINDS,
    ("model", "frontend"): audio.KINDS,
    ("model", "head"): heads.KINDS,
    ("search",): search.KINDS,
}


POSITIONS = sections_of(PositionConfig, positions.KINDS)
SUBSAMPLINGS = sections_of(SubsamplingConfig, subsampling.KINDS)
FRONTENDS = sections_of(FrontendConfig, audio.KINDS)
HEADS = sections_of(HeadConfig, heads.KINDS)
SEARCHES = sections_of(SearchConfig, search.KINDS)
if TYPE_CHECKING:
    AnyPosition = PositionConfig
    AnySubsampling = SubsamplingConfig
    AnyFrontend = FrontendConfig
    AnyHead = HeadConfig
    AnySearch = SearchConfig
else:
    AnyPosition, AnySubsampling, AnyHead, AnySearch = (
        any_of(each.values()) for each in (POSITIONS, SUBSAMPLINGS, HEADS, SEARCHES)
    )
    AnyFrontend = any_of(FRONTENDS.values(), "kaldi")  # the only kind with options
