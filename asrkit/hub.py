"""Addresses and uploads of models on the Hugging Face hub. Only hf://owner/name names them.

The package huggingface_hub makes the requests. It reads HF_HOME, HF_TOKEN, HF_ENDPOINT and
HF_HUB_OFFLINE.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from asrkit.errors import UserError, reason, shown
from asrkit.extras import need

PREFIX = "hf://"
MODEL, CARD = "model.safetensors", "README.md"  # files of a repository
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


@contextmanager
def explained(address: Address) -> Iterator[None]:
    """In the block, turn errors of the library into UserErrors of one line."""
    try:
        from huggingface_hub import constants, errors
    except ValueError as error:
        why = f"one of its variables (HF_ENDPOINT, …) is wrong: {reason(error)}"
        raise UserError(f"huggingface_hub cannot be used: {why}") from None
    try:
        yield
    except UserError:
        raise
    except (
        errors.HTTPError, errors.EntryNotFoundError, errors.XetDownloadError,
        OSError, RuntimeError, ValueError,
    ) as error:  # fmt: skip
        status = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(error, errors.GatedRepoError):
            page = f"{constants.ENDPOINT}/{address.repository}"
            why = f"its owner grants access: ask at {page}, then set HF_TOKEN"
        elif isinstance(error, errors.RevisionNotFoundError):
            why = "no such revision: give a branch, a tag or a commit of it"
        elif isinstance(error, errors.RemoteEntryNotFoundError):
            why = "no such file in this repository"
        elif isinstance(error, errors.RepositoryNotFoundError):
            why = "no such repository, or a private one: for that set HF_TOKEN"
        elif status in (401, 403):
            why = "not allowed: set HF_TOKEN to a token of the hub that may do this"
        elif status == 412:
            why = "it has a new commit since: try again"
        elif isinstance(error, errors.OfflineModeIsEnabled):
            why = "not in the cache, and HF_HUB_OFFLINE forbids the download"
        elif isinstance(error, errors.HTTPError) and status is None:
            why = f"not in the cache, and {constants.ENDPOINT} cannot be reached: {reason(error)}"
        else:
            why = reason(error)
        raise UserError(f"{address}: {why}") from None


def upload(
    path: Path, card: str, address: Address, message: str, private: bool, overwrite_card: bool
) -> tuple[str, bool]:
    """Write a model file and its card in one commit; return it, and whether it has the card."""
    need("huggingface_hub")
    repository, branch, file = address
    with explained(address):
        from huggingface_hub import CommitOperationAdd, HfApi

        api = HfApi()
        api.create_repo(repository, private=private or None, exist_ok=True)
        there = api.model_info(repository)
        if private and not there.private:
            raise UserError(f"{address} is public: --private is for a repository that is not there")
        if branch is not None:
            api.create_branch(repository, branch=branch, exist_ok=True)
            there = api.model_info(repository, revision=branch)
        files: dict[str, Path | bytes] = {file or MODEL: path, CARD: card.encode()}
        if any(each.rfilename == CARD for each in there.siblings or []) and not overwrite_card:
            del files[CARD]
        done = api.create_commit(
            repository, [CommitOperationAdd(*each) for each in files.items()],
            commit_message=message, revision=branch, parent_commit=there.sha,
        )  # fmt: skip
    return done.oid, CARD in files
