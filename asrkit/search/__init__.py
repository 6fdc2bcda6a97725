"""From log-probabilities to hypotheses, incrementally."""

from asrkit.search.greedy import GreedySearch
from asrkit.search.hypothesis import Hypothesis, Search

__all__ = ["GreedySearch", "Hypothesis", "Search"]
