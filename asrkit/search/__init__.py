"""From log-probabilities to hypotheses, incrementally: one class a kind.

The options of a kind are its class's arguments, but for the blank and the language model, with the
defaults that stand there.
"""

import copy
import inspect
import math
from collections.abc import Mapping
from typing import Any

from asrkit.errors import UserError
from asrkit.kinds import Kinds
from asrkit.search.fusion import Both, Fusion
from asrkit.search.greedy import GreedySearch
from asrkit.search.hypothesis import NOTHING, Hypothesis, Ranked, Search
from asrkit.search.prefix_beam import PrefixBeamSearch

__all__ = [
    "KINDS",
    "NOTHING",
    "Both",
    "Fusion",
    "GreedySearch",
    "Hypothesis",
    "PrefixBeamSearch",
    "Ranked",
    "Search",
    "build_search",
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
    """The search of a "kind" with its options, and a language model if the kind takes one.

    Raises:
        ValueError: for numbers that do not fit.
    """
    cls, options = KINDS.chosen(search)
    return cls(**options) if fusion is None else cls(**options, fusion=fusion)


def plus(search: Search, fusion: Fusion) -> Search:
    """The search with one fusion more; the search itself stays as it is.

    Raises:
        UserError: for a search that takes none.
    """
    if not isinstance(search, PrefixBeamSearch):
        raise UserError("this search takes no hotwords; choose search prefix_beam, which does")
    more = copy.copy(search)
    more.fusion = Both(search.fusion, fusion)
    more.ceiling = math.exp(more.fusion.ceiling)
    return more
