"""Models on the Hugging Face hub. Only hf://owner/name names them.

The package huggingface_hub makes the requests and keeps the cache. It reads HF_HOME, HF_TOKEN,
HF_ENDPOINT and HF_HUB_OFFLINE.
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
MOST_BYTES = 1 << 33  # size limit of a model file, many times the largest
MOST_CHARACTERS = 300  # length limit of an address
NAME = r"\w+(?:[.-]\w+)*"  # no dots or hyphens in a row, nor at an end
REPOSITORY = re.compile(rf"{NAME}/{NAME}", re.ASCII)
COMMIT = re.compile(r"[0-9a-f]{40}")
PLAIN = re.compile(r"\w[\w.+-]{0,199}", re.ASCII)  # not a path: no separator or leading dot
FILE = re.compile(rf"{NAME}\.safetensors", re.ASCII)
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


def download(text: str) -> Path:
    """Return the path of a model file in the hub's cache; download it unless it is there.

    The file is that of the address, else model.safetensors, else the only .safetensors file of the
    repository. No other file is downloaded.
    """
    address = address_of(text)
    need("huggingface_hub")
    repository, revision, file = address
    with explained(address):
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HTTPError, RemoteEntryNotFoundError

        try:
            return fetch(repository, revision, file or MODEL)
        except (HTTPError, OSError) as error:
            if file is not None:
                raise
            if isinstance(error, RemoteEntryNotFoundError):
                names = HfApi().list_repo_files(repository, revision=revision)
            else:
                names = cached(repository, revision)
                if not names:
                    raise
        found = sorted(filter(FILE.fullmatch, names))
        if len(found) == 1:
            return fetch(repository, revision, found[0])
    if found:
        raise UserError(
            f"{address} has several model files, name one as {address}/FILE: "
            f"{shown(Path(', '.join(found)))}"
        )
    raise UserError(f"{address} has no .safetensors file: name another repository")


def cached(repository: str, revision: str | None) -> list[str]:
    """Return the files of a repository in the cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = snapshot_download(repository, revision=revision, local_files_only=True)
    except LocalEntryNotFoundError:
        return []
    return [path.name for path in Path(folder).iterdir()]


def fetch(repository: str, revision: str | None, file: str) -> Path:
    """Return the path of a file in the cache; download it unless it is there.

    The library uses the hub's ETag and commit as names in the cache, without checks of its own. It
    asks for them once more: a hub that then sends other ones may have a file written anywhere.
    """
    from huggingface_hub import (
        constants,
        get_hf_file_metadata,
        hf_hub_download,
        hf_hub_url,
        try_to_load_from_cache,
    )
    from huggingface_hub.errors import HTTPError, RemoteEntryNotFoundError

    known = try_to_load_from_cache(repository, file, revision=revision)
    if isinstance(known, str) and COMMIT.fullmatch(revision or ""):
        return Path(known)
    url = hf_hub_url(repository, file, revision=revision)
    try:
        there = get_hf_file_metadata(url, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except RemoteEntryNotFoundError:
        raise
    except (HTTPError, OSError):  # no answer, or no access
        if isinstance(known, str):
            return Path(known)
        raise
    for what, name in (("ETag", there.etag), ("commit", there.commit_hash)):
        if not PLAIN.fullmatch(name or ""):
            raise UserError(f"the hub sends {shown(name)} as {what}, which is not a file name")
    if there.size is None or there.size > MOST_BYTES:
        raise UserError(
            f"{file} of {repository} has {there.size or 'an unknown number of'} bytes: a model "
            f"file has {MOST_BYTES} at most"
        )
    return Path(hf_hub_download(repository, file, revision=revision))


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
