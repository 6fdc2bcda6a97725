"""Trying an input in a forked process with limits on memory, time and files to write."""

import faulthandler
import json
import logging
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from asrkit.cli.parser import LONGEST_LINE, MOST_LINES
from asrkit.errors import UserError, printable

CPU_SECONDS, WALL_SECONDS = 10, 60  # of one input; others may use the machine
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod")
STARTS = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect")
HARMLESS = ("ffmpeg", "ffprobe", "python")  # of this test, and the server's own decoder
READ, REFUSED = "read", "refused"
LONGEST = 4000  # letters of a detail


class Part(NamedTuple):
    """A kind of input.

    `run` reads an input. It gets the path and a list of the lines that asrkit logs, and returns
    what is wrong, or "".
    """

    seeds: Callable[[Path], None]  # writes valid inputs, files or folders, into a folder
    run: Callable[[Path, list[str]], str]
    memory_mb: int = 1024  # that an input may take


class Outcome(NamedTuple):
    """The outcome of an input: READ, REFUSED with the toolkit's own error, or a fault."""

    kind: str
    detail: str = ""

    @property
    def is_fault(self) -> bool:
        return self.kind not in (READ, REFUSED)


class OutsideError(BaseException):
    """A forbidden act: a file written outside the folder, a program, a connection."""


def tried(part: Part, source: Path, folder: Path) -> Outcome:
    """Read a copy of an input in a forked process that may write to `folder` alone."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "inside").mkdir(parents=True)
    path, noise = folder / "inside" / source.name, folder / "noise.txt"
    (shutil.copytree if source.is_dir() else shutil.copyfile)(source, path)
    reader, writer = os.pipe()
    sys.stdout.flush()
    process = os.fork()
    if not process:
        with suppress(BaseException):
            os.close(reader)
            _confine(part, folder, noise)
            os.write(writer, json.dumps(_outcome(part, path)).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(process, 0)
    if answer and not os.WIFSIGNALED(status):
        return Outcome(*json.loads(answer))
    name = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "exit"
    kind = "hang" if name in ("SIGXCPU", "SIGALRM") else f"crash {name}"
    return Outcome(kind, noise.read_text(errors="replace")[-LONGEST:])


def _confine(part: Part, folder: Path, noise: Path) -> None:
    """Limit this process: memory, time, files, and acts that Python audits."""
    os.chdir(folder)
    os.environ |= dict.fromkeys(("HOME", "TMPDIR", "TORCHINDUCTOR_CACHE_DIR"), str(folder))
    tempfile.tempdir = str(folder)
    sys.dont_write_bytecode = True
    errors = os.open(noise, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (0, 1, 2):
        os.dup2(errors if stream else os.open(os.devnull, os.O_RDONLY), stream)
    faulthandler.enable(2, all_threads=False)
    for limit in (signal.SIGXCPU, signal.SIGALRM):  # its default ends the process
        signal.signal(limit, signal.SIG_DFL)
        faulthandler.register(limit, 2, all_threads=False, chain=True)
    signal.alarm(WALL_SECONDS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + (part.memory_mb << 20)
    for kind, size in (
        (resource.RLIMIT_CPU, CPU_SECONDS), (resource.RLIMIT_AS, most), (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 1 << 28),
    ):  # fmt: skip
        resource.setrlimit(kind, (size, size + 1))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    home = str(folder.resolve())

    def audit(event: str, values: Any) -> None:
        paths = ()
        if event == "open" and isinstance(values[2], int) and values[2] & WRITES:
            paths = values[:1]
        elif event in CHANGES:
            paths = values[:2] if event in ("os.rename", "os.link", "os.symlink") else values[:1]
        elif event in STARTS and not Path(str(values[0])).name.startswith(HARMLESS):
            raise OutsideError(f"{event} {values!r:.200}")
        for path in paths:
            if isinstance(path, str | bytes | Path):
                real = os.path.realpath(os.fsdecode(path))
                if not real.startswith((home, "/dev/")):
                    raise OutsideError(f"{event} {real}")

    sys.addaudithook(audit)


def _outcome(part: Part, path: Path) -> Outcome:
    """Let the part read an input."""
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    errors = logging.Handler(logging.ERROR)  # exceptions of threads and tasks
    traces: list[str] = []
    errors.emit = lambda record: traces.append(errors.format(record))  # type: ignore[method-assign]
    logging.getLogger("asrkit").addHandler(handler)
    logging.getLogger().addHandler(errors)
    try:
        problem = part.run(path, said)
        if traces:
            return Outcome("logged", traces[0][-LONGEST:])
        return Outcome("wrong", problem) if problem else Outcome(READ)
    except MemoryError:
        return Outcome("memory", traceback.format_exc()[-LONGEST:])
    except UserError as error:
        text = str(error)
        lines = text.splitlines()
        if not 0 < len(lines) <= MOST_LINES or len(max(lines, key=len)) > LONGEST_LINE:
            return Outcome("message", text[:LONGEST])
        if printable("".join(lines)) != "".join(lines):
            return Outcome("message not printable", repr(text[:LONGEST]))
        return Outcome(REFUSED, text)
    except OutsideError:
        return Outcome("outside", traceback.format_exc()[-LONGEST:])
    except BaseException as error:
        if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
            return Outcome(REFUSED, str(error))  # commands print it in a line
        return Outcome(type(error).__name__, traceback.format_exc()[-LONGEST:])
