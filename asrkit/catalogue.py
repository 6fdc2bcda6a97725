"""The catalogue of models by name: ready ones, models on the hub, and names that cannot run."""

from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

PATH = Path(__file__).with_suffix(".yaml")

Name = Annotated[str, Field(pattern=r"^[a-z0-9]+([._-][a-z0-9]+)*$", max_length=100)]
Language = Annotated[str, Field(pattern=r"^[a-z]{2,3}$")]
Milliseconds = Annotated[str, Field(pattern=r"^(full|\d{1,7}(\+\d{1,7})?)$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


class Part(BaseModel):
    """A part of the catalogue; unknown keys and other types are errors."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Entry(Part):
    """A model that asrkit runs."""

    name: Name
    repository: str | None = None  # owner/name on the hub; None for a file of the package
    revision: Commit | None = None
    file: str
    format: Literal["asrkit", "nemo"]
    size: int | None = None  # bytes
    sha256: Digest | None = None
    languages: list[Language]
    parameters: float  # millions
    licence: str | None = None  # None for that of the repository's card
    contexts: Annotated[list[Milliseconds], Field(min_length=1)]  # chunk+ahead, the default first
    writes: list[Literal["case", "punctuation", "end of turn"]]
    prompt: str | None = None  # default language of a model with a language prompt
    note: str = ""


class Unusable(Part):
    """Names of models that asrkit cannot run."""

    names: Annotated[list[str], Field(min_length=1)]  # patterns of the name after the owner
    why: str
    nearest: Name  # an entry

    def matches(self, name: str) -> bool:
        """Whether a model or repository of this name is meant."""
        last = name.rpartition("/")[2].lower()
        return any(fnmatchcase(last, pattern) for pattern in self.names)


class Catalogue(Part):
    models: list[Entry]
    cannot_run: list[Unusable]


@cache
def read_catalogue() -> Catalogue:
    """Return the catalogue of the package."""
    return Catalogue.model_validate(yaml.safe_load(PATH.read_text(encoding="utf-8")))
