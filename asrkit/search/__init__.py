"""Decoding: searches that turn log-probabilities into hypotheses, step by step.

Each kind is a class. The options of a kind are the class's arguments without `blank` and `fusion`.
"""

import copy
import inspect
from collections.abc import Mapping
from typing import Any

from asrkit.errors import UserError
from asrkit.registry import Kinds
from asrkit.search.base import (
    NOTHING,
    BatchSearch,
    FusingSearch,
    Hypothesis,
    Ranked,
    SavableSearch,
    Search,
)
from asrkit.search.fusion import Both, Fusion
from asrkit.search.greedy import GreedySearch
from asrkit.search.prefix_beam import PrefixBeamSearch
from asrkit.search.transducer_beam import TransducerBeamSearch
from asrkit.search.transducer_greedy import Transducer, TransducerGreedySearch

__all__ = [
    "KINDS",
    "NOTHING",
    "BatchSearch",
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
    "TransducerBeamSearch",
    "TransducerGreedySearch",
    "build_search",
    "calling",
    "is_fusing",
    "plus",
    "takes_fusion",
]

KINDS: Kinds[Any] = Kinds(
    "search", {"greedy": GreedySearch, "prefix_beam": PrefixBeamSearch}, ("blank", "fusion")
)
# The same searches, with the same options, for the frames of a transducer.
OF_TRANSDUCER: dict[type, Any] = {
    GreedySearch: TransducerGreedySearch,
    PrefixBeamSearch: TransducerBeamSearch,
}


def takes_fusion(kind: str) -> bool:
    """Return whether a kind can use a language model."""
    return "fusion" in inspect.signature(KINDS[kind]).parameters


def build_search(
    search: Mapping[str, Any], fusion: Fusion | None = None, transducer: Transducer | None = None
) -> Search:
    """Build the search of a configuration.

    Args:
        search: "kind", and the options of that kind.
        fusion: a language model, for a kind that can use it.
        transducer: head whose frames the search reads; None for CTC's log-probabilities.
    """
    cls, options = KINDS.chosen(search)
    if fusion is not None:
        options["fusion"] = fusion
    return cls(**options) if transducer is None else OF_TRANSDUCER[cls](transducer, **options)


def calling(
    search: Search, transducer: Transducer | None, end_of_turn: int | None = None
) -> Search:
    """Return a copy of a search for a network, or the search if it needs no change.

    Args:
        transducer: predictor and joiner that a transducer's search calls.
        end_of_turn: label of the network that marks ends of turns.
    """
    own: dict[str, Any] = {"head": transducer, "end_of_turn": end_of_turn}
    changed = {
        name: value for name, value in own.items() if value is not None and hasattr(search, name)
    }
    if not changed:
        return search
    other = copy.copy(search)
    vars(other).update(changed)
    return other


def is_fusing(search: Search) -> bool:
    """Return whether a search can add the scores of a fusion."""
    return isinstance(search, FusingSearch)


def plus(search: Search, fusion: Fusion) -> Search:
    """Return a copy of the search that adds the scores of one more fusion."""
    if not isinstance(search, FusingSearch):
        raise UserError("this search cannot use hotwords; choose search prefix_beam")
    return search.plus(fusion)
