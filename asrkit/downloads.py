"""Downloads of models from the Hugging Face hub.

Files stay in the folder asrkit of HF_HOME, under names that this module makes or checks, so that no
answer of a hub has a file written elsewhere.
"""

import hashlib
import logging
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from tqdm import tqdm

from asrkit.atomic_write import digest_of, move, replacing, sha256_of
from asrkit.catalogue import Entry
from asrkit.errors import UserError, reason, shown
from asrkit.extras import need
from asrkit.hub import MODEL, Address, explained
from asrkit.terms import LANGUAGE, MOST_LANGUAGES, Terms, checked_licence, licence_of

logger = logging.getLogger("asrkit")

MOST_BYTES = 1 << 33  # size limit of a model's files, many times the largest
COMMIT = re.compile(r"[0-9a-f]{40}")
DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")  # of git, or SHA-256
PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")  # no separator or leading dot


class Checked(BaseModel):
    """A part of a hub's answer, or of the cache."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class Stated(Checked):
    """The size of a file and the digest of its contents, as the hub states them."""

    size: Annotated[int, Field(ge=0)]
    digest: Annotated[str, Field(pattern=rf"^({DIGEST.pattern})$")]


class Listing(Checked):
    """The files of a commit, without those in folders, and the terms on the repository's card."""

    commit: Annotated[str, Field(pattern=rf"^{COMMIT.pattern}$")]
    files: dict[Annotated[str, Field(pattern=rf"^{PLAIN.pattern}$")], Stated]
    licence: str | None = None
    languages: list[str] = []

    @property
    def terms(self) -> Terms:
        return Terms(self.licence, tuple(self.languages))


class Source(NamedTuple):
    """The files of a commit that make a model."""

    address: Address
    listing: Listing
    names: tuple[str, ...]

    @property
    def name(self) -> str:
        """The repository's name, without its owner."""
        return self.address.repository.partition("/")[2]

    @property
    def folder(self) -> Path:
        """The folder of these contents in the cache, whatever their commit."""
        parts = sorted((name, self.listing.files[name].digest) for name in self.names)
        digest = hashlib.sha256(repr(parts).encode()).hexdigest()
        return cache_of(self.address.repository) / "files" / digest[:40]

    def fetch(self) -> Path:
        """Return the folder with the files; download those that are not in a cache."""
        if all((self.folder / name).is_file() for name in self.names):
            return self.folder
        with explained(self.address):
            from huggingface_hub import try_to_load_from_cache

            repository, commit = self.address.repository, self.listing.commit
            there = [try_to_load_from_cache(repository, name, revision=commit)
                     for name in self.names]  # fmt: skip
            if all(isinstance(path, str) for path in there):  # another program downloaded them
                return Path(str(there[0])).parent
            self.folder.mkdir(parents=True, exist_ok=True)
            with lock(self.folder):  # another process may download them
                for name in self.names:
                    if not (self.folder / name).is_file():
                        self._download(name)
        return self.folder

    def _download(self, name: str) -> None:
        """Download a file, or the rest of an interrupted download, and check its digest."""
        from huggingface_hub import hf_hub_url

        stated, part = self.listing.files[name], self.folder / f"{name}.part"
        self._require_space(name, stated.size - (part.stat().st_size if part.exists() else 0))
        licence = self.listing.licence or "not stated on the repository's card"
        logger.warning("downloading %s: %s, %.1f MB; licence: %s",
                       self.address, name, stated.size / 1e6, licence)  # fmt: skip
        commit = self.listing.commit
        receive(hf_hub_url(self.address.repository, name, revision=commit), part, stated.size)
        is_git = len(stated.digest) == 40
        digest = (
            digest_of(part, hashlib.sha1(b"blob %d\0" % stated.size)) if is_git else sha256_of(part)
        )
        if digest != stated.digest:
            part.unlink()
            raise UserError(
                f"{self.address}: {name} is damaged: its digest is {digest}, and {stated.digest} "
                "was expected: try again"
            )
        move(part, self.folder / name)

    def _require_space(self, name: str, missing: int) -> None:
        """Raise UserError for a model that is too large, for the limit or for the disk."""
        total = sum(self.listing.files[each].size for each in self.names)
        if total > MOST_BYTES:
            raise UserError(
                f"{name} of {self.address} has {total} bytes: a model has {MOST_BYTES} at most"
            )
        free = shutil.disk_usage(self.folder).free
        if missing > free:
            raise UserError(
                f"{self.address}: {name} needs {missing / 1e6:.0f} MB, the disk has "
                f"{free / 1e6:.0f}: free some, or set HF_HOME to a folder on another disk"
            )


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Wait for other processes that hold the lock of a path; hold it in the block."""
    from huggingface_hub.utils import WeakFileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(f"{path}.lock"):
        yield


def cache_of(repository: str) -> Path:
    """Return the folder of a repository in the cache."""
    from huggingface_hub import constants

    return Path(constants.HF_HOME) / "asrkit" / repository.replace("/", "--")


def bytes_here(entry: Entry) -> int:
    """Return the size of all that the cache has of a model's repository."""
    if find_spec("huggingface_hub") is None:
        return 0
    size = 0
    with explained(Address(str(entry.repository))):
        for path in cache_of(str(entry.repository)).rglob("*"):
            with suppress(FileNotFoundError):  # renamed by a process that downloads it
                size += path.stat().st_size if path.is_file() else 0
    return size


def receive(url: str, part: Path, size: int) -> None:
    """Append bytes to those of a file that were received earlier, until it has its size.

    A connection that ends early is opened again if bytes arrived.
    """
    from huggingface_hub import constants, get_session
    from huggingface_hub.errors import HTTPError
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

    with (
        part.open("ab") as file,
        tqdm(total=size, unit="B", unit_scale=True, desc=part.stem, disable=None) as bar,
    ):
        while (start := file.tell()) < size:
            bar.update(start - bar.n)
            asked = {"Range": f"bytes={start}-", "Accept-Encoding": "identity"}
            why = "the hub sent no more"
            try:
                with get_session().stream(
                    "GET", url, headers=build_hf_headers() | asked, follow_redirects=True,
                    timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
                ) as response:  # fmt: skip
                    hf_raise_for_status(response)
                    if response.status_code != 206:  # the whole file
                        file.seek(0)
                        file.truncate()
                    for block in response.iter_raw():  # decoding could fill the memory
                        if file.tell() + len(block) > size:
                            raise UserError(f"{part.stem} is longer than the {size} bytes stated")
                        file.write(block)
                        bar.update(len(block))
            except HTTPError as error:
                if file.tell() == start == 0 or hasattr(error, "response"):  # no answer, or refused
                    raise
                why = reason(error)
            if file.tell() <= start:
                raise UserError(
                    f"{part.stem}: the download stopped after {file.tell()} of {size} bytes, "
                    f"{why}: repeat the command, it continues there"
                )


def find(address: Address, kinds: Sequence[str] = (".safetensors", ".nemo")) -> Source:
    """Return the source of a model.

    It is the file of the address, else model.safetensors unless a checkpoint is beside it, else
    the only file of the repository with one of the suffixes in `kinds`.
    """
    listing = listing_of(address)
    found = [name for name in sorted(listing.files) if Path(name).suffix in kinds]
    if address.file is not None:
        found = [address.file]
    elif MODEL in found and not any(name.endswith(".nemo") for name in found):
        found = [MODEL]
    if not found:
        raise UserError(f"{address} has no {' or '.join(kinds)} file: name another repository")
    if len(found) > 1:
        raise UserError(
            f"{address} has several model files, name one as {address}/FILE: "
            f"{shown(Path(', '.join(found)))}"
        )
    return Source(address, listing, (found[0],))


def find_files(address: Address, alternatives: Iterable[Sequence[str]]) -> Source:
    """Return the source of several files.

    Args:
        alternatives: patterns of the names; the first of each alternative is required.
    """
    listing = listing_of(address)
    for first, *others in alternatives:
        if any(fnmatchcase(name, first) for name in listing.files):
            patterns = (first, *others)
            names = tuple(name for name in listing.files
                          if any(fnmatchcase(name, each) for each in patterns))  # fmt: skip
            return Source(address, listing, names)
    needed = " or ".join(first for first, *_ in alternatives)
    raise UserError(f"{address} has no {needed}: name another repository")


def find_entry(entry: Entry) -> Source:
    """Return the source of a model of the catalogue, with the terms and the digest there.

    Raises:
        UserError: if the hub states another size or SHA-256.
    """
    address = Address(str(entry.repository), entry.revision, entry.file)
    source = find(address)
    listing = source.listing
    stated = listing.files[entry.file]
    known = Stated(size=entry.size or stated.size, digest=entry.sha256 or stated.digest)
    if stated != known and (stated.size != known.size or len(stated.digest) == len(known.digest)):
        raise UserError(
            f"{address}: the hub has {stated.size} bytes with the digest {stated.digest}, and "
            f"{entry.name} is {known.size} with {known.digest}: do not use this file"
        )
    terms = {"licence": listing.licence or entry.licence, "languages": entry.languages}
    files = {"files": {**listing.files, entry.file: known}}
    return source._replace(listing=listing.model_copy(update=terms | files))


def listing_of(address: Address) -> Listing:
    """Return the checked listing of the commit of an address."""
    need("huggingface_hub")
    with explained(address):
        found = current(address.repository, address.revision)
    if address.file is not None and address.file not in found.files:
        raise UserError(f"{address}: no such file in this repository")
    return found


def current(repository: str, revision: str | None) -> Listing:
    """Return the listing of a commit: from the hub, or from the cache if it does not answer.

    A commit in the cache cannot change, so that the hub is not asked.
    """
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HTTPError, OfflineModeIsEnabled

    known = from_cache(repository, revision or "main")
    if known is not None and known.commit == revision:
        return known
    try:
        info = HfApi().model_info(
            repository, revision=revision, files_metadata=True,
            timeout=constants.HF_HUB_ETAG_TIMEOUT,
        )  # fmt: skip
    except (HTTPError, OSError) as error:  # no answer, or no access
        known = known or of_snapshot(repository, revision)
        if known is None:
            raise
        if not isinstance(error, OfflineModeIsEnabled):
            logger.warning(
                "%s: its commit %.12s is read from the cache, for the hub has no answer: %s",
                repository, known.commit, reason(error),
            )  # fmt: skip
        return known
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"the hub's answer cannot be read: {reason(error)}") from None
    found = checked(info)
    if COMMIT.fullmatch(revision or "") and found.commit != revision:
        raise ValueError(f"the hub sends the commit {found.commit} in place of {revision}")
    keep(repository, revision or "main", found)
    return found


def checked(info: Any) -> Listing:
    """Return the checked listing in a hub's answer."""
    files: Any = {
        each.rfilename: {"size": each.size, "digest": each.lfs.sha256 if each.lfs else each.blob_id}
        for each in info.siblings or []
        if isinstance(each.rfilename, str) and PLAIN.fullmatch(each.rfilename)
    }
    properties = {
        key: getattr(info.card_data, key, None) for key in ("license", "license_name", "language")
    }
    languages = properties["language"]
    languages = languages if isinstance(languages, list) else [languages]
    terms = Terms()
    with suppress(UserError):
        terms = Terms(checked_licence(licence_of(properties)))
    try:
        return Listing(
            commit=info.sha, files=files, licence=terms.licence,
            languages=[each for each in languages
                       if isinstance(each, str) and LANGUAGE.fullmatch(each)][:MOST_LANGUAGES],
        )  # fmt: skip
    except ValidationError as error:
        wrong = error.errors()[0]
        place = ".".join(map(str, wrong["loc"]))
        raise ValueError(
            f"the hub sends {shown(wrong['input'])} as {shown(Path(place))}: {wrong['msg']}"
        ) from None


def keep(repository: str, revision: str, listing: Listing) -> None:
    """Write a listing and the commit of a revision into the cache, unless they are there."""
    folder = cache_of(repository)
    for path, text in (
        (folder / "commits" / f"{listing.commit}.json", listing.model_dump_json()),
        (folder / "revisions" / quote(revision, safe=""), listing.commit),
    ):
        with suppress(OSError):  # a cache that is only read
            if not path.is_file() or path.read_text() != text:
                with replacing(path) as temporary:
                    temporary.write_text(text)


def from_cache(repository: str, revision: str) -> Listing | None:
    """Return the listing of a revision in the cache."""
    folder = cache_of(repository)
    with suppress(OSError, ValueError):
        if not COMMIT.fullmatch(revision):
            revision = (folder / "revisions" / quote(revision, safe="")).read_text()
        return Listing.model_validate_json((folder / "commits" / f"{revision}.json").read_bytes())
    return None


def of_snapshot(repository: str, revision: str | None) -> Listing | None:
    """Return the listing of a commit that another program downloaded to the hub's own cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(repository, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    files = {}
    for path in folder.iterdir():
        if path.is_file() and PLAIN.fullmatch(path.name):
            blob = path.resolve().name  # named by its digest where links are possible
            digest = blob if DIGEST.fullmatch(blob) else sha256_of(path)
            files[path.name] = Stated(size=path.stat().st_size, digest=digest)
    return Listing(commit=folder.name, files=files)
