"""Writing files atomically: after a crash the old or the new file exists, never a part.

The same holds after a power cut: contents are on the disk before they get their name. A process
that is killed leaves its temporary folder, `.asrkit-….part`; see `sweep`.
"""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from asrkit.errors import UserError, shown

PREFIX, SUFFIX = ".asrkit-", ".part"  # of the names of temporary folders
BLOCK = 1 << 22  # bytes of a file that are hashed at once


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Return a temporary file of the same name; it replaces `path` if the block does not raise.

    A symbolic link is kept, and its target is replaced.
    """
    given = Path(path)
    if not given.name or (given.exists() and not given.is_file()):
        raise UserError(f"cannot write {shown(given)}: it is not a file; give the path of a file")
    path = Path(os.path.realpath(given))
    with _temporary(path, given) as folder:
        temporary = folder / path.name
        temporary.touch()
        mode = stat.S_IMODE(temporary.stat().st_mode)
        yield temporary
        temporary.chmod(mode)  # safetensors makes files that only the owner can read
        flush(temporary)
        os.replace(temporary, path)
        flush(path.parent)


def write_text(path: str | Path, text: str, errors: str = "strict") -> None:
    """Write a text in UTF-8, as `replacing` does."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors=errors)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Return a temporary folder beside `path`; it gets that name if the block raises no exception.

    Raises:
        UserError: if `path` exists by then.
    """
    with _temporary(path, path) as folder:
        (folder / "usual").mkdir()
        mode = stat.S_IMODE((folder / "usual").stat().st_mode)
        (folder / "usual").rmdir()
        yield folder
        folder.chmod(mode)  # only the owner can read temporary folders
        for each in (*folder.rglob("*"), folder):
            flush(each)
        refuse_existing(path)  # an empty folder would be replaced
        folder.rename(path)
        flush(path.parent)


def refuse_existing(path: Path) -> None:
    """Raise UserError if the path of a new folder exists."""
    if path.exists():
        raise UserError(f"{shown(path)} exists already: name a new folder")


def refuse_file(option: str, folder: Path) -> None:
    """Raise UserError if the path of an option's folder, or a path above it, is a file."""
    nearest = next(each for each in (folder, *folder.parents) if each.exists())
    if not nearest.is_dir():
        raise UserError(f"{option} must name a folder, but {shown(nearest)} is a file")


def sweep(folder: Path) -> None:
    """Delete what killed processes left in a folder to which no other one writes."""
    for path in folder.glob(f"{PREFIX}*{SUFFIX}"):
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _temporary(path: Path, given: Path) -> Iterator[Path]:
    """Return a temporary folder beside `path`, which is removed at the end.

    An error that has no file name, as of a full disk, or the temporary one, gets that of `given`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = ""
    try:
        with TemporaryDirectory(SUFFIX, PREFIX, path.parent, ignore_cleanup_errors=True) as folder:
            yield Path(folder)
    except OSError as error:
        if error.filename is None or str(error.filename).startswith(folder):
            error.filename = str(given)
        raise


def flush(path: Path) -> None:
    """Wait until a file's contents, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot
            raise
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, which may be larger than memory."""
    return digest_of(path, hashlib.sha256())


def digest_of(path: Path, digest: "hashlib._Hash") -> str:
    """Add the contents of a file to a hash, and return its digest."""
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
