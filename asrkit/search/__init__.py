"""From log-probabilities to hypotheses, incrementally: one class a kind.

The options of a kind are its class's arguments but the blank, with the defaults that stand there.
"""

import inspect
from collections.abc import Mapping
from typing import Any

from asrkit import kinds
from asrkit.search.greedy import GreedySearch
from asrkit.search.hypothesis import Hypothesis, Search
from asrkit.search.prefix_beam import PrefixBeamSearch

__all__ = ["KINDS", "GreedySearch", "Hypothesis", "PrefixBeamSearch", "Search", "build_search"]

KINDS: dict[str, type[Any]] = {"greedy": GreedySearch, "prefix_beam": PrefixBeamSearch}


def options(kind: str) -> dict[str, inspect.Parameter]:
    """The options of a kind, with their types and defaults."""
    return kinds.options(KINDS[kind], ("blank",))


def refusal(kind: object) -> str:
    """What to say of a kind that is not one."""
    return kinds.refusal(kind, KINDS)


def build_search(search: Mapping[str, Any]) -> Search:
    """The search of a "kind" with its options.

    Raises:
        ValueError: for numbers that do not fit.
    """
    options = dict(search)
    return KINDS[options.pop("kind")](**options)
