"""The catalogue of models by name: ready ones, models on the hub, and names that cannot run."""

from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

from asrkit.errors import UserError, shown

PATH = Path(__file__).with_suffix(".yaml")


class Part(BaseModel):
    """A part of the catalogue; unknown keys and other types are errors."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Entry(Part):
    """A model that asrkit runs."""

    name: str
    repository: str | None = None  # owner/name on the hub; None for a file of the package
    revision: str | None = None  # commit
    file: str
    format: Literal["asrkit", "nemo"]
    size: int | None = None  # bytes
    sha256: str | None = None
    languages: list[str]
    parameters: float  # millions
    licence: str | None = None  # None for that of the repository's card
    contexts: list[str]  # chunk+ahead, the default first
    writes: list[Literal["case", "punctuation", "end of turn"]]
    prompt: str | None = None  # default language of a model with a language prompt
    note: str = ""


class Unusable(Part):
    """Names of models that asrkit cannot run."""

    names: list[str]  # patterns, without the owner
    why: str
    nearest: str  # an entry


class Catalogue(Part):
    models: list[Entry]
    publishers: list[str]  # owners of repositories for which the names below hold
    cannot_run: list[Unusable]


@cache
def read_catalogue() -> Catalogue:
    """Return the catalogue of the package."""
    return Catalogue.model_validate(yaml.safe_load(PATH.read_text(encoding="utf-8")))


def entry_of(name: str) -> Entry | None:
    """Return the model of a name."""
    return next((each for each in read_catalogue().models if each.name == name), None)


def require_usable(name: str) -> None:
    """Raise UserError for the name, or the owner/name, of a model that cannot run."""
    owner, _, last = name.lower().rpartition("/")
    found = read_catalogue()
    for each in found.cannot_run if not owner or owner in found.publishers else []:
        if any(fnmatchcase(last, pattern) for pattern in each.names):
            raise UserError(
                f"{shown(name)} is not a model that asrkit runs by name: "
                f"{each.why.replace('NAME', last)}; the nearest one is {each.nearest}"
            )


def near(name: str) -> str:
    """Return a question for the name that is most like this one, or ""."""
    found = get_close_matches(
        name.rpartition("/")[2], [each.name for each in read_catalogue().models], 1
    )
    return f"; did you mean {found[0]}?" if found else ""
