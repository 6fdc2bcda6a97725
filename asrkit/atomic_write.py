"""Writing files atomically: after a crash the old or the new file exists, never a part."""

import functools
import itertools
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from asrkit.errors import UserError, shown

PREFIX = f".asrkit-{platform.node().replace(os.sep, '_')}-"  # then the process, then a number
ABANDONED_SECONDS = 24 * 3600.0
_number = itertools.count()


@contextmanager
def replacing(path: str | Path, is_private: bool = False) -> Iterator[Path]:
    """Return a temporary path beside `path`; it replaces `path` if the block raises no exception.

    A private file exists from the start, and only its owner can ever read it.

    A symbolic link is kept, and its target is replaced. Temporary files of killed processes in the
    folder are removed, see `remove_leftovers`.

    Raises:
        UserError: for the path of a folder, a device or a pipe.
    """
    given = Path(path)
    if not given.name or (given.exists() and not given.is_file()):
        raise UserError(f"cannot write {shown(given)}: it is not a file; give the path of a file")
    path = Path(os.path.realpath(given))
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent.absolute())
    temporary = path.with_name(f"{PREFIX}{os.getpid()}-{next(_number)}.part")
    try:
        if is_private:
            temporary.touch(mode=0o600, exist_ok=False)
        yield temporary
        if not is_private:
            os.umask(mask := os.umask(0))
            temporary.chmod(0o666 & ~mask)  # some writers make files that only the owner can read
        os.replace(temporary, path)
    except OSError as error:  # for example a full disk, without a file name or with the temporary
        if error.filename in (None, str(temporary)):
            error.filename = str(given)
        raise
    finally:
        with suppress(OSError):  # in a read-only folder it never existed
            temporary.unlink()


@functools.cache  # once per folder: a listing for each of many files would be quadratic
def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of `replacing` that no process will finish.

    These are files of this machine whose process has ended, and all files that are a day old:
    processes of other machines cannot be checked, and process ids are reused.
    """
    with suppress(OSError):  # a folder that cannot be listed, a file that has just been finished
        for path in folder.glob(".asrkit-*-*.part*"):
            process = path.name.removeprefix(PREFIX).split("-")[0]
            ours = path.name.startswith(PREFIX) and process.isdecimal()
            age = time.time() - path.stat().st_mtime
            if (ours and not is_running(int(process))) or age > ABANDONED_SECONDS:
                path.unlink()


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
