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
from asrkit.search.transducer_greedy import Transducer, TransducerGreedySearch

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
    "Transducer",
    "TransducerGreedySearch",
    "build_search",
    "is_fusing",
    "plus",
    "takes_fusion",
    "transducer_search",
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


def transducer_search(search: Mapping[str, Any], head: Transducer) -> Search:
    """Return the search of a configuration for a transducer: greedy is the one that there is.

    Raises:
        UserError: for another kind.
    """
    cls, options = KINDS.chosen(search)
    if cls is not GreedySearch:
        raise UserError(
            f"search {search['kind']} reads the frames of a CTC head, and this model's head is a "
            "transducer: choose search greedy"
        )
    return TransducerGreedySearch(head, **options)


def is_fusing(search: Search) -> bool:
    """Whether a search adds the scores of a fusion."""
    return isinstance(search, FusingSearch)


def plus(search: Search, fusion: Fusion) -> Search:
    """A copy of the search that adds the scores of one more fusion.

    Raises:
        UserError: for a search that takes no fusion.
    """
    if not isinstance(search, FusingSearch):
        if isinstance(search, TransducerGreedySearch):
            raise UserError(
                "hotwords and language models need a beam search, and a transducer has search "
                "greedy alone: leave them out, or use a model with a CTC head"
            )
        raise UserError("this search takes no hotwords; choose search prefix_beam, which does")
    return search.plus(fusion)
