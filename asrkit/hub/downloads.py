"""Downloads of models from the Hugging Face hub, into the cache of its library.

The folder asrkit of HF_HOME has what the library does not keep: which files a commit has with
which digests, whose contents were compared with them, and converted checkpoints.
"""

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from asrkit.atomic_write import digest_of, replacing
from asrkit.errors import UserError, reason, shown
from asrkit.extras import need
from asrkit.hub import MODEL, Address
from asrkit.hub.access import explained
from asrkit.hub.catalogue import Entry
from asrkit.terms import LANGUAGE, MOST_LANGUAGES, Terms, checked_licence, licence_of
from asrkit.version import __version__

logger = logging.getLogger("asrkit")

MOST_BYTES = 1 << 33  # size limit of a model's files, many times the largest
DIGEST = r"[0-9a-f]{40}|[0-9a-f]{64}"  # of git, or SHA-256
PLAIN = r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}"  # no separator or leading dot


class Stated(NamedTuple):
    """The size of a file and the digest of its contents, as the hub states them."""

    size: Annotated[int, Field(ge=0)]
    digest: Annotated[str, Field(pattern=rf"^({DIGEST})$")]


class Listing(BaseModel):
    """The files of a commit, without those in folders, and the terms on the repository's card."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    files: dict[Annotated[str, Field(pattern=rf"^{PLAIN}$")], Stated]
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

    def converted(self, prompt: str | None) -> Path:
        """Return the path of the converted model in the cache, another one for other terms."""
        digests = [self.listing.files[name].digest for name in self.names]
        parts = repr((digests, __version__, prompt, self.listing.terms))
        folder = hashlib.sha256(parts.encode()).hexdigest()[:16]
        return cache_of(self.address.repository) / folder / f"{self.name}.safetensors"

    def fetch(self) -> Path:
        """Return the folder with the files; download those that are not in the cache."""
        with explained(self.address):
            from huggingface_hub import (
                get_hf_file_metadata,
                hf_hub_download,
                hf_hub_url,
                try_to_load_from_cache,
            )

            place, commit = self.address.repository, self.listing.commit
            for name in self.names:
                stated = self.listing.files[name]
                if not isinstance(try_to_load_from_cache(place, name, revision=commit), str):
                    self._announce(name)
                    sent = get_hf_file_metadata(hf_hub_url(place, name, revision=commit)).size
                    if sent != stated.size:
                        raise UserError(
                            f"{self.address}: the hub sends {sent} bytes as {name}, and its "
                            f"listing states {stated.size}: do not use this file"
                        )
                path = Path(hf_hub_download(place, name, revision=commit))
                self._compare(path, stated)
        return path.parent

    def _announce(self, name: str) -> None:
        """Log a download with its licence. Raises UserError for a model that is too large."""
        total = sum(self.listing.files[each].size for each in self.names)
        if total > MOST_BYTES:
            raise UserError(
                f"{name} of {self.address} has {total} bytes: a model has {MOST_BYTES} at most"
            )
        licence = self.listing.licence or "not stated on the repository's card"
        size = self.listing.files[name].size / 1e6
        logger.warning(
            "downloading %s: %s, %.1f MB; licence: %s", self.address, name, size, licence
        )

    def _compare(self, path: Path, stated: Stated) -> None:
        """Compare a file with its digest, once as long as its size and time do not change."""
        blob = path.resolve()
        state = blob.stat()
        mark = f"{blob} {state.st_size} {state.st_mtime_ns}"
        record = cache_of(self.address.repository) / "compared" / stated.digest
        with suppress(OSError):
            if record.read_text() == mark:
                return
        is_git = len(stated.digest) == 40
        kind = hashlib.sha1(b"blob %d\0" % state.st_size) if is_git else hashlib.sha256()
        if (digest := digest_of(blob, kind)) != stated.digest:
            for each in {blob, path}:
                each.unlink()
            raise UserError(
                f"{self.address}: {path.name} is damaged: its digest is {digest}, and "
                f"{stated.digest} was expected: try again"
            )
        write(record, mark)


def lock(path: Path) -> AbstractContextManager[Any]:
    """Wait for other processes that hold the lock of a path; hold it in the block."""
    from huggingface_hub.utils import WeakFileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    return WeakFileLock(f"{path}.lock")


def cache_of(repository: str) -> Path:
    """Return the folder of a repository in asrkit's cache."""
    from huggingface_hub import constants

    return Path(constants.HF_HOME) / "asrkit" / repository.replace("/", "--")


def write(path: Path, text: str) -> None:
    """Write a file of the cache, unless the cache is only read."""
    with suppress(OSError), replacing(path) as temporary:
        temporary.write_text(text)


def find(address: Address, kinds: Sequence[str] = (".safetensors", ".nemo")) -> Source:
    """Return the source of a model.

    It is the file of the address, else model.safetensors unless a checkpoint is beside it, else
    the only file of the repository with one of the suffixes in `kinds`.
    """

    def choose(names: Iterable[str]) -> list[str]:
        if address.file is not None:
            return [name for name in names if name == address.file]
        found = [name for name in names if Path(name).suffix in kinds]
        is_alone = MODEL in found and not any(name.endswith(".nemo") for name in found)
        return [MODEL] if is_alone else found

    source = located(address, choose, f"{' or '.join(kinds)} file")
    if len(source.names) > 1:
        raise UserError(
            f"{address} has several model files, name one as {address}/FILE: "
            f"{shown(Path(', '.join(source.names)))}"
        )
    return source


def find_files(address: Address, alternatives: Iterable[Sequence[str]]) -> Source:
    """Return the source of several files.

    Args:
        alternatives: patterns of the names; the first of each alternative is required.
    """

    def choose(names: Iterable[str]) -> list[str]:
        for patterns in alternatives:
            if any(fnmatchcase(name, patterns[0]) for name in names):
                return [name for name in names if any(fnmatchcase(name, each) for each in patterns)]
        return []

    return located(address, choose, " or ".join(first for first, *_ in alternatives))


def find_entry(entry: Entry) -> Source:
    """Return the source of a model of the catalogue, with the terms there.

    Raises:
        UserError: if the hub states another size or SHA-256.
    """
    source = find(Address(str(entry.repository), entry.revision, entry.file))
    stated = source.listing.files[entry.file]
    known = Stated(entry.size or stated.size, entry.sha256 or stated.digest)
    if stated != known:
        raise UserError(
            f"{source.address}: the hub has {stated.size} bytes with the digest {stated.digest}, "
            f"and {entry.name} is {known.size} with {known.digest}: do not use this file"
        )
    terms = {"licence": source.listing.licence or entry.licence, "languages": entry.languages}
    return source._replace(listing=source.listing.model_copy(update=terms))


def located(address: Address, choose: Callable[[Iterable[str]], list[str]], wanted: str) -> Source:
    """Return the chosen files of a commit, as the hub lists it, or the cache without an answer.

    A commit in the cache cannot change, so that the hub is not asked.

    Args:
        choose: function that returns the names of the files, none if a required one is missing.
        wanted: name of the required file, for messages.
    """
    need("huggingface_hub")
    with explained(address):
        from huggingface_hub.errors import HTTPError, OfflineModeIsEnabled

        folder, listing = cache_of(address.repository) / "listings", None
        revision = quote(address.revision or "main", "")
        with suppress(OSError, ValueError):
            listing = Listing.model_validate_json((folder / revision).read_bytes())
        if listing is None or listing.commit != address.revision:
            try:
                listing = asked(address)
                for name in {revision, listing.commit}:
                    write(folder / name, listing.model_dump_json())
            except (HTTPError, OSError) as error:  # no answer, or no access
                if listing is None or not choose(sorted(listing.files)):
                    raise
                if not isinstance(error, OfflineModeIsEnabled):
                    logger.warning(
                        "%s: its commit %.12s is read from the cache, for the hub has no answer: "
                        "%s", address.repository, listing.commit, reason(error),
                    )  # fmt: skip
    names = choose(sorted(listing.files))
    if address.file is not None and not names:
        raise UserError(f"{address}: no such file in this repository")
    if not names:
        raise UserError(f"{address} has no {wanted}: name another repository")
    return Source(address, listing, tuple(names))


def asked(address: Address) -> Listing:
    """Return the listing of a commit in the hub's answer. Raises ValueError for another answer."""
    from huggingface_hub import HfApi, constants

    try:
        info = HfApi().model_info(
            address.repository, revision=address.revision, files_metadata=True,
            timeout=constants.HF_HUB_ETAG_TIMEOUT,
        )  # fmt: skip
        card = info.card_data.to_dict() if info.card_data else {}
        files = {
            each.rfilename: [each.size, each.lfs.sha256 if each.lfs else each.blob_id]
            for each in info.siblings or []
            if re.fullmatch(PLAIN, each.rfilename)
        }
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"the hub's answer cannot be read: {reason(error)}") from None
    if address.revision and len(address.revision) == 40 and info.sha != address.revision:
        raise ValueError(f"the hub sends the commit {info.sha} in place of {address.revision}")
    licence, languages = None, card.get("language")
    with suppress(UserError):
        licence = checked_licence(licence_of(card))
    codes = [each for each in (languages if isinstance(languages, list) else [languages])
             if isinstance(each, str) and LANGUAGE.fullmatch(each)][:MOST_LANGUAGES]  # fmt: skip
    values = {"commit": info.sha, "files": files, "licence": licence, "languages": codes}
    try:
        return Listing.model_validate_json(json.dumps(values))
    except ValidationError as error:
        wrong = error.errors()[0]
        place = ".".join(map(str, wrong["loc"]))
        raise ValueError(
            f"the hub sends {shown(wrong['input'])} as {shown(Path(place))}: {wrong['msg']}"
        ) from None
