"""Settings of decoding, which are parsed one by one."""

from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from asrkit import search
from asrkit.config.bounds import Number, NumberFromZero, Section
from asrkit.config.error_messages import parsed
from asrkit.config.kinds import AnySearch, SearchConfig, usually


class LanguageModelConfig(Section):
    """A language model for decoding. Model files do not contain it, as they name no other files."""

    # path of an ARPA file or a KenLM binary
    path: Annotated[str, BeforeValidator(lambda it: str(it) if isinstance(it, PurePath) else it)]
    units: Literal["words", "tokens"] = "words"
    weight: NumberFromZero = 0.5
    word_bonus: Number = 0.5  # added for each word, or token


class _Decoding(Section):
    search: AnySearch = usually("greedy")
    lm: LanguageModelConfig = LanguageModelConfig(path="")


def parse_search(value: Any) -> SearchConfig:
    """Check a search given by a kind, or by a dict of a kind and its options."""
    return parsed(_Decoding, {"search": value}, {("search",): search.KINDS}).search


def parse_language_model(value: Any) -> LanguageModelConfig:
    """Check a language model given by a path, or by a dict of a path and options."""
    return parsed(_Decoding, {"lm": value if isinstance(value, dict) else {"path": value}}, {}).lm
