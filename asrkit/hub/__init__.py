"""Models by name. Only hf://owner/name names one on the Hugging Face hub.

The package huggingface_hub makes the requests. It reads HF_HOME, HF_TOKEN, HF_ENDPOINT and
HF_HUB_OFFLINE.
"""

import re
from typing import NamedTuple

from asrkit.errors import UserError, shown

PREFIX = "hf://"
MODEL, CARD = "model.safetensors", "README.md"  # files of a repository
NO_LICENCE = "its card states none or the hub has no answer"
MOST_CHARACTERS = 300  # length limit of an address
NAME = r"\w+(?:[.-]\w+)*"  # no dots or hyphens in a row, nor at an end
REPOSITORY = re.compile(rf"{NAME}/{NAME}", re.ASCII)
FILE = re.compile(rf"{NAME}\.(?:safetensors|nemo)", re.ASCII)
ADDRESS = re.compile(
    rf"{PREFIX}({REPOSITORY.pattern})(?:@({NAME}(?:/{NAME})*?))?(?:/({FILE.pattern}))?", re.ASCII
)


class Address(NamedTuple):
    """The parts of an address hf://owner/name@revision/file."""

    repository: str  # owner/name
    revision: str | None = None  # branch, tag or commit; None for the main branch
    file: str | None = None

    def __str__(self) -> str:
        revision = "" if self.revision is None else f"@{self.revision}"
        return f"{PREFIX}{self.repository}{revision}" + (f"/{self.file}" if self.file else "")


def address_of(text: str) -> Address:
    found = ADDRESS.fullmatch(text) if len(text) <= MOST_CHARACTERS else None
    if found is None:
        raise UserError(
            "a model on the hub must be hf://owner/name, hf://owner/name@revision or "
            f"hf://owner/name/file.safetensors, got {shown(text)}"
        )
    return Address(*found.groups())
