"""Decoding: searches that turn log-probabilities into hypotheses, step by step.

Each kind is a class. The options of a kind are the class's arguments without `fusion`.
"""

from collections.abc import Mapping
from typing import Any

from asrkit.registry import Kinds
from asrkit.search.base import NOTHING, Hypothesis, Ranked, Search
from asrkit.search.fusion import Both, Fusion
from asrkit.search.greedy import GreedySearch
from asrkit.search.prefix_beam import PrefixBeamSearch
from asrkit.search.transducer_beam import TransducerBeamSearch
from asrkit.search.transducer_greedy import Transducer, TransducerGreedySearch

KINDS: Kinds[Any] = Kinds(
    "search", {"greedy": GreedySearch, "prefix_beam": PrefixBeamSearch}, ("fusion",)
)
# The same searches, with the same options, for the frames of a transducer.
OF_TRANSDUCER: dict[type, Any] = {
    GreedySearch: TransducerGreedySearch,
    PrefixBeamSearch: TransducerBeamSearch,
}


def build_search(
    search: Mapping[str, Any], fusion: Fusion | None = None, of_transducer: bool = False
) -> Search:
    """Build the search of a configuration.

    Args:
        search: "kind", and the options of that kind.
        fusion: a language model, for a kind that can use it.
        of_transducer: whether the search reads the frames of a transducer, to which it has to be
            `bound`, and not CTC's log-probabilities.
    """
    cls, options = KINDS.chosen(search)
    if fusion is not None:
        options["fusion"] = fusion
    if of_transducer:
        cls = OF_TRANSDUCER[cls]
    return cls(**options)
