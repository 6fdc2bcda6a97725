"""Decoding: searches that turn log-probabilities into hypotheses, step by step; one class a kind.

The options of a kind are its class's arguments without `blank` and `fusion`, with their defaults.
"""

import inspect
from collections.abc import Mapping
from typing import Any

from asrkit.errors import UserError
from asrkit.registry import Kinds
from asrkit.search.base import NOTHING, FusingSearch, Hypothesis, Ranked, SavableSearch, Search
from asrkit.search.fusion import Both, Fusion
from asrkit.search.greedy import GreedySearch
from asrkit.search.prefix_beam import PrefixBeamSearch

__all__ = [
    "KINDS",
    "NOTHING",
    "Both",
    "FusingSearch",
    "Fusion",
    "GreedySearch",
    "Hypothesis",
    "PrefixBeamSearch",
    "Ranked",
    "SavableSearch",
    "Search",
    "build_search",
    "is_fusing",
    "plus",
    "takes_fusion",
]

KINDS: Kinds[Any] = Kinds(
    "search", {"greedy": GreedySearch, "prefix_beam": PrefixBeamSearch}, ("blank", "fusion")
)


def takes_fusion(kind: str) -> bool:
    """Whether a kind takes a language model."""
    return "fusion" in inspect.signature(KINDS[kind]).parameters


def build_search(search: Mapping[str, Any], fusion: Fusion | None = None) -> Search:
    """The search of a configuration.

    Args:
        search: its "kind" and the options of that kind.
        fusion: a language model, for a kind that takes one.

    Raises:
        ValueError: for an option out of range.
    """
    cls, options = KINDS.chosen(search)
    return cls(**options) if fusion is None else cls(**options, fusion=fusion)


def is_fusing(search: Search) -> bool:
    """Whether a search adds the scores of a fusion."""
    return isinstance(search, FusingSearch)


def plus(search: Search, fusion: Fusion) -> Search:
    """A copy of the search that adds the scores of one more fusion.

    Raises:
        UserError: for a search that takes no fusion.
    """
    if not isinstance(search, FusingSearch):
        raise UserError("this search takes no hotwords; choose search prefix_beam, which does")
    return search.plus(fusion)
