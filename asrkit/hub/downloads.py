"""Downloads of models from the Hugging Face hub, into the cache of its library."""

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from asrkit.atomic_write import digest_of, write_text
from asrkit.errors import UserError, reason, shown
from asrkit.extras import need
from asrkit.hub import MODEL, Address
from asrkit.hub.access import explained
from asrkit.hub.catalogue import Entry
from asrkit.terms import LANGUAGE, MOST_LANGUAGES, UNKNOWN, Terms, checked_licence, licence_of
from asrkit.version import __version__

logger = logging.getLogger("asrkit")

MOST_BYTES = 1 << 33  # size limit of a model's files, many times the largest
COMMIT = re.compile(r"[0-9a-f]{40}")
PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")  # no separator or leading dot


class Stated(NamedTuple):
    """The size of a file and the digest of its contents, as the hub states them."""

    size: int
    digest: str  # SHA-256, or git's


class Record(BaseModel):
    """Facts about a download that the library's cache lacks.

    The record is written before the download and again after the comparison: a process that is
    killed in between leaves no file that is never compared.
    """

    stated: Stated
    terms: Terms | None
    listing: tuple[str, ...]  # names of all files of the commit
    compared: str = ""  # digest to which the file was compared


class Source(NamedTuple):
    """The files of a commit that make a model."""

    address: Address
    commit: str
    files: dict[str, Stated | None]  # by name; None: a file of the cache, without a record
    terms: Terms | None = None  # on the repository's card, or in the catalogue; None: not known
    listing: tuple[str, ...] = ()  # names of all files of the commit; () if not known

    @property
    def name(self) -> str:
        """The repository's name, without its owner."""
        return self.address.repository.partition("/")[2]

    def known_terms(self) -> Terms:
        """Return the terms; the hub is asked for those of a model in the cache, if it answers."""
        with suppress(UserError), explained(self.address):
            return self.terms or asked(self.address).terms or UNKNOWN
        return UNKNOWN

    def converted(self, prompt: str | None) -> Path:
        """Return the path of the converted model in asrkit's folder of HF_HOME."""
        parts = repr((self.commit, [*self.files], __version__, prompt))
        folder = hashlib.sha256(parts.encode()).hexdigest()[:16]
        return folder_of(self.address) / folder / f"{self.name}.safetensors"

    def fetch(self) -> Path:
        """Return the folder with the files; download those that are not in the cache.

        Each file is compared to its digest once.
        """
        from huggingface_hub import (
            get_hf_file_metadata,
            hf_hub_download,
            hf_hub_url,
            try_to_load_from_cache,
        )

        place, revision = self.address.repository, self.address.revision
        with explained(self.address):
            for name, stated in self.files.items():
                path = try_to_load_from_cache(place, name, revision=self.commit)
                if stated is None:
                    continue
                kept = record_path(self.address, self.commit, name)
                record = Record(stated=stated, terms=self.terms, listing=self.listing)
                if not isinstance(path, str):
                    self._announce(name, stated)
                    sent = get_hf_file_metadata(hf_hub_url(place, name, revision=revision)).size
                    if sent != stated.size:
                        raise UserError(
                            f"{self.address}: the hub sends {sent} bytes as {name}, and its "
                            f"listing states {stated.size}: do not use this file"
                        )
                    write_record(kept, record)
                    path = hf_hub_download(place, name, revision=revision)
                elif (known := read_record(kept)) and known.compared == stated.digest:
                    continue
                compare(self.address, Path(path), stated)
                record.compared = stated.digest
                write_record(kept, record)
        return Path(str(path)).parent

    def _announce(self, name: str, stated: Stated) -> None:
        """Log a download with its licence. Raises UserError for a model that is too large."""
        total = sum(each.size for each in self.files.values() if each is not None)
        if total > MOST_BYTES:
            raise UserError(
                f"{name} of {self.address} has {total} bytes: a model has {MOST_BYTES} at most"
            )
        licence = self.terms and self.terms.licence
        logger.warning(
            "downloading %s: %s, %.1f MB; licence: %s", self.address, name, stated.size / 1e6,
            licence or "not stated on the repository's card",
        )  # fmt: skip


def folder_of(address: Address) -> Path:
    """Return asrkit's folder of HF_HOME for a repository."""
    from huggingface_hub import constants

    return Path(constants.HF_HOME, "asrkit", address.repository.replace("/", "--"))


def record_path(address: Address, commit: str, name: str) -> Path:
    return folder_of(address) / commit / f"{name}.json"


def read_record(path: Path) -> Record | None:
    """Return the record of a download; None without one."""
    with suppress(OSError, ValueError):
        return Record.model_validate_json(path.read_bytes())
    return None


def write_record(path: Path, record: Record) -> None:
    """Write the record of a download, unless the folder is read-only."""
    with suppress(OSError):
        write_text(path, record.model_dump_json())


def compare(address: Address, path: Path, stated: Stated) -> None:
    """Remove a file from the cache, and raise UserError, if it has another digest than stated."""
    blob = path.resolve()
    is_git = len(stated.digest) == 40
    kind = hashlib.sha1(b"blob %d\0" % blob.stat().st_size) if is_git else hashlib.sha256()
    if (digest := digest_of(blob, kind)) != stated.digest:
        for each in {blob, path}:
            each.unlink(missing_ok=True)
        raise UserError(
            f"{address}: {path.name} is damaged: its digest is {digest}, and {stated.digest} was "
            "expected: try again"
        )


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

    source = cached(address, choose)
    # A commit cannot change, but the cache may lack the file that would be chosen.
    is_sure = source is not None and source.commit == address.revision
    if source is None or not is_sure or not (address.file or source.listing):
        source = located(address, choose, f"{' or '.join(kinds)} file")
    if len(source.files) > 1:
        raise UserError(
            f"{address} has several model files, name one as {address}/FILE: "
            f"{', '.join(source.files)}"
        )
    return source


def find_files(address: Address, patterns: Sequence[str]) -> Source:
    """Return the source of several files.

    Args:
        patterns: patterns of the names; the first one is required.
    """

    def choose(names: Iterable[str]) -> list[str]:
        if not any(fnmatchcase(name, patterns[0]) for name in names):
            return []
        return [name for name in names if any(fnmatchcase(name, each) for each in patterns)]

    return located(address, choose, patterns[0])


def find_entry(entry: Entry) -> Source:
    """Return the source of a model of the catalogue, with the terms and the digest there."""
    source = find(Address(str(entry.repository), entry.revision, entry.file))
    if entry.size is not None and entry.sha256 is not None:
        source = source._replace(files={entry.file: Stated(entry.size, entry.sha256)})
    terms = Terms(entry.licence, tuple(entry.languages))
    return source._replace(terms=terms.or_else(source.terms or UNKNOWN))


def located(address: Address, choose: Callable[[Iterable[str]], list[str]], wanted: str) -> Source:
    """Return the chosen files of a commit, as the hub lists it, or the cache without an answer.

    Args:
        choose: function that returns the names of the files, none if a required one is missing.
        wanted: name of the required file, for messages.
    """
    need("huggingface_hub")
    with explained(address):
        from huggingface_hub.errors import HTTPError, OfflineModeIsEnabled

        try:
            found = asked(address)
        except (HTTPError, OSError) as error:  # no answer, or no access
            if (kept := cached(address, choose)) is None:
                raise
            if not isinstance(error, OfflineModeIsEnabled):
                logger.warning(
                    "%s: its commit %.12s is read from the cache, for the hub has no answer: %s",
                    address.repository, kept.commit, reason(error),
                )  # fmt: skip
            return kept
    names = choose(sorted(found.files))
    if not names and address.file is not None:
        raise UserError(f"{address}: no such file in this repository")
    if not names:
        raise UserError(f"{address} has no {wanted}: name another repository")
    files = {name: found.files[name] for name in names}
    return found._replace(files=files, listing=tuple(found.files))


def cached(address: Address, choose: Callable[[Iterable[str]], list[str]]) -> Source | None:
    """Return the chosen files of a commit in the cache; None if one is missing.

    They are chosen from all files of the commit if a record has their names: the cache may lack
    some of them.
    """
    need("huggingface_hub")
    from huggingface_hub import snapshot_download

    with suppress(OSError):  # no such commit
        place, revision = address.repository, address.revision
        folder = Path(snapshot_download(place, revision=revision, local_files_only=True))
        there = sorted(each.name for each in folder.iterdir())
        found = {name: read_record(record_path(address, folder.name, name)) for name in there}
        record = next(filter(None, found.values()), None)
        listing, terms = ((), None) if record is None else (record.listing, record.terms)
        names = choose(listing or there)
        if names and found.keys() >= {*names}:
            kept = {name: found[name] for name in names}
            files = {name: None if each is None else each.stated for name, each in kept.items()}
            return Source(address, folder.name, files, terms, listing)
    return None


def asked(address: Address) -> Source:
    """Return all files of a commit in the hub's answer, without those in folders."""
    from huggingface_hub import HfApi, constants

    info = HfApi().model_info(
        address.repository, revision=address.revision, files_metadata=True,
        timeout=constants.HF_HUB_ETAG_TIMEOUT,
    )  # fmt: skip
    if not COMMIT.fullmatch(str(info.sha)):
        raise ValueError(f"the hub sends {shown(info.sha)} as a commit")
    if COMMIT.fullmatch(address.revision or "") and info.sha != address.revision:
        raise ValueError(f"the hub sends the commit {info.sha} in place of {address.revision}")
    card = info.card_data.to_dict() if info.card_data else {}
    files: dict[str, Stated | None] = {
        each.rfilename: Stated(each.size, str(each.lfs.sha256 if each.lfs else each.blob_id))
        for each in info.siblings or []
        if PLAIN.fullmatch(each.rfilename) and isinstance(each.size, int)
    }
    licence, languages = None, card.get("language")
    with suppress(UserError):
        licence = checked_licence(licence_of(card))
    codes = [each for each in (languages if isinstance(languages, list) else [languages])
             if isinstance(each, str) and LANGUAGE.fullmatch(each)][:MOST_LANGUAGES]  # fmt: skip
    return Source(address, str(info.sha), files, Terms(licence, tuple(codes)))
