"""Writing files atomically: after a crash the old or the new file exists, never a part.

The same holds after a power cut: contents are on the disk before they get their name.
"""

import errno
import functools
import hashlib
import itertools
import os
import platform
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from asrkit.errors import UserError, shown


def _machine() -> str:
    """Return a name of the machine, and of a container: containers may share the name of theirs."""
    try:
        container = f"-{os.stat('/proc/self/ns/pid').st_ino}"  # process ids are unique in it
    except OSError:  # not Linux
        container = ""
    return platform.node().replace(os.sep, "_") + container


PREFIX = f".asrkit-{_machine()}-"  # then the process, then a number
ABANDONED_SECONDS = 24 * 3600.0
BLOCK = 1 << 22  # bytes of a file that are hashed at once
_number = itertools.count()


@contextmanager
def replacing(path: str | Path, is_private: bool = False, flushes: bool = True) -> Iterator[Path]:
    """Return a temporary file beside `path`; it replaces `path` if the block raises no exception.

    Only its owner can ever read a private file. Without `flushes` a power cut may leave an empty
    file.

    A symbolic link is kept, and its target is replaced. Temporary files of killed processes in the
    folder are removed, see `remove_leftovers`.
    """
    given = Path(path)
    if not given.name or (given.exists() and not given.is_file()):
        raise UserError(f"cannot write {shown(given)}: it is not a file; give the path of a file")
    path = Path(os.path.realpath(given))
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent.absolute())
    temporary = _temporary(path)
    try:
        temporary.touch(mode=0o600 if is_private else 0o666, exist_ok=False)
        mode = stat.S_IMODE(temporary.stat().st_mode)
        yield temporary
        temporary.chmod(mode)  # some writers make files that only the owner can read
        if flushes:
            flush(temporary)
        os.replace(temporary, path)
        if flushes:
            flush(path.parent)
    except OSError as error:
        _name(error, temporary, given)
        raise
    finally:
        with suppress(OSError):  # in a read-only folder it never existed
            temporary.unlink()


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Return a temporary folder beside `path`; it gets that name if the block raises no exception.

    Raises:
        FileExistsError: if `path` exists by then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent.absolute())
    temporary = _temporary(path)
    try:
        temporary.mkdir()
        yield temporary
        for each in (*temporary.rglob("*"), temporary):
            if not each.is_symlink():  # it may lead nowhere
                flush(each)
        if path.exists():  # an empty folder would be replaced
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        temporary.rename(path)
        flush(path.parent)
    except OSError as error:
        _name(error, temporary, path)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_folder(path: Path) -> None:
    """Remove a folder; it is renamed first, so that none is ever half removed."""
    remove_leftovers(path.parent.absolute())
    shutil.rmtree(path.rename(_temporary(path)), ignore_errors=True)


def _temporary(path: Path) -> Path:
    return path.with_name(f"{PREFIX}{os.getpid()}-{next(_number)}.part")


def _name(error: OSError, temporary: Path, path: Path) -> None:
    """Set the file name of an error, for example of a full disk, that has none or the temporary."""
    if error.filename is None or str(error.filename).startswith(str(temporary)):
        error.filename = str(path)


def flush(path: Path) -> None:
    """Wait until a file's contents, or the names in a folder, are on the disk."""
    if path.is_dir() and os.name != "posix":
        return
    # Windows flushes only files that are open for writing.
    descriptor = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot
            raise
    finally:
        os.close(descriptor)


@functools.cache  # once per folder: a listing for each of many files would be quadratic
def remove_leftovers(folder: Path) -> None:
    """Remove temporary files and folders of this module that no process will finish.

    These are those of this machine whose process has ended, and all that are a day old: processes
    of other machines and containers cannot be checked, and process ids are reused.
    """
    with suppress(OSError):  # a folder that cannot be listed
        for path in folder.glob(".asrkit-*-*.part*"):
            with suppress(OSError):  # a file that has just been finished, or cannot be removed
                process = path.name.removeprefix(PREFIX).split("-")[0]
                ours = path.name.startswith(PREFIX) and process.isdecimal()
                age = time.time() - max(each.stat().st_mtime for each in (path, *path.glob("*")))
                if (ours and not is_running(int(process))) or age > ABANDONED_SECONDS:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


def is_running(process: int) -> bool:
    """Return whether a process with this id exists; True if that cannot be checked."""
    if os.name != "posix":  # elsewhere signal 0 would end the process
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, which may be larger than memory."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            found.update(block)
    return found.hexdigest()
