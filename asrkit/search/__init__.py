"""From log-probabilities to hypotheses, incrementally: one class a kind.

The options of a kind are its class's arguments, but for the blank and the language model, with the
defaults that stand there.
"""

import copy
import inspect
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asrkit import kinds
from asrkit.errors import UserError
from asrkit.search.fusion import (
    LIMIT,
    Both,
    Fusion,
    LanguageModel,
    TokenFusion,
    Weighted,
    WordFusion,
)
from asrkit.search.greedy import GreedySearch
from asrkit.search.hotwords import Hotwords, read_hotwords, weighed
from asrkit.search.hypothesis import NOTHING, Hypothesis, Ranked, Search
from asrkit.search.kenlm import KenLM, is_binary
from asrkit.search.ngram import ArpaError, NGram, read_arpa
from asrkit.search.prefix_beam import PrefixBeamSearch

__all__ = [
    "KINDS",
    "LIMIT",
    "NOTHING",
    "ArpaError",
    "Both",
    "Fusion",
    "GreedySearch",
    "Hotwords",
    "Hypothesis",
    "LanguageModel",
    "NGram",
    "PrefixBeamSearch",
    "Ranked",
    "Search",
    "TokenFusion",
    "Weighted",
    "WordFusion",
    "build_search",
    "plus",
    "read_arpa",
    "read_hotwords",
    "read_language_model",
    "takes_fusion",
    "weighed",
]

KINDS: dict[str, type[Any]] = {"greedy": GreedySearch, "prefix_beam": PrefixBeamSearch}


def options(kind: str) -> dict[str, inspect.Parameter]:
    """The options of a kind, with their types and defaults."""
    return kinds.options(KINDS[kind], ("blank", "fusion"))


def refusal(kind: object) -> str:
    """What to say of a kind that is not one."""
    return kinds.refusal(kind, KINDS)


def read_language_model(path: str | Path) -> LanguageModel:
    """The model of an ARPA file, which may be gzipped, or of a binary of KenLM.

    Raises:
        ArpaError: for a file that cannot be read.
    """
    path = Path(path)
    return KenLM(path) if path.is_file() and is_binary(path) else read_arpa(path)


def takes_fusion(kind: str) -> bool:
    """Whether a kind takes a language model."""
    return "fusion" in inspect.signature(KINDS[kind]).parameters


def build_search(search: Mapping[str, Any], fusion: Fusion | None = None) -> Search:
    """The search of a "kind" with its options, and a language model if the kind takes one.

    Raises:
        ValueError: for numbers that do not fit.
    """
    arguments = dict(search)
    kind = arguments.pop("kind")
    if fusion is not None:
        arguments["fusion"] = fusion
    return KINDS[kind](**arguments)


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
