"""Plain manifests, the user's format: a JSON object a line, see `Utterance`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from asrkit.errors import UserError


class ManifestError(UserError):
    """A manifest that cannot be used; the message names the file and the line."""


class LeftOut(NamedTuple):
    """An utterance that is not used, and why."""

    id: str
    reason: str


class Utterance(BaseModel):
    """A line of a manifest; other keys are left alone."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)

    id: str
    audio: str  # relative to the manifest's folder
    text: str | None = None
    speaker: str | None = None
    start: Annotated[float, Field(ge=0.0)] | None = None  # seconds, of a part of the file
    duration: Annotated[float, Field(gt=0.0)] | None = None
    # With `duration`, these save reading the file's header.
    sample_rate: Annotated[int, Field(ge=1000)] | None = None
    num_channels: Annotated[int, Field(ge=1)] = 1


def read_manifest(path: str | Path, left_out: list[LeftOut]) -> Iterator[Utterance]:
    """The utterances of a plain JSONL manifest, `audio` made absolute.

    Args:
        path: of the manifest.
        left_out: gets the lines whose strings no file could hold.

    Raises:
        ManifestError: if it is missing, or a line is not an object with the right keys.
    """
    path = Path(path)
    if not path.is_file():
        raise ManifestError(f"no manifest {path}")
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield parse_line(line, path.parent)
            except UnicodeEncodeError as error:
                left_out.append(LeftOut(f"{path}:{number}", what_is_wrong(error)))
            except ValueError as error:  # not JSON, not UTF-8, or not an utterance
                raise ManifestError(f"{path}:{number}: {what_is_wrong(error)}") from None


def parse_line(line: bytes, folder: Path) -> Utterance:
    """The utterance of a line; a ValueError that `what_is_wrong` explains if it is none."""
    try:
        values = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deep") from None
    utterance = Utterance.model_validate(values)
    # JSON can write half a character ("\ud800"), which neither files nor tokenizers can hold.
    f"{utterance.id}{utterance.audio}{utterance.text}{utterance.speaker}".encode()
    return utterance.model_copy(update={"audio": str(folder / utterance.audio)})


def what_is_wrong(error: ValueError) -> str:
    if isinstance(error, UnicodeEncodeError):
        return f"{error.object[error.start]!r} cannot be written as UTF-8"
    if not isinstance(error, pydantic.ValidationError):
        return f"not JSON: {error}"
    first = error.errors()[0]
    key = "".join(f"'{part}': " for part in first["loc"])
    return f"{key}{first['msg'][0].lower()}{first['msg'][1:]}, got {first['input']!r}"
