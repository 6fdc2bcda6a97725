"""Trying inputs in a forked process with limits on memory, time and the files that it may write."""

import faulthandler
import json
import logging
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from asrkit.cli.parser import LONGEST_LINE, MOST_LINES
from asrkit.errors import UserError, printable

CPU_SECONDS, WALL_SECONDS = 10, 60  # of one input; others may use the machine
WAIT_SECONDS = 0.5
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod")
STARTS = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect")
HARMLESS = ("ffmpeg", "ffprobe", "python")  # of this tool, and the server's own decoder
READ, REFUSED = "read", "refused"
Try = Callable[[Path, list[str]], str]


class Part(NamedTuple):
    """A kind of input.

    `run` reads an input. It gets the path and a list of the lines that asrkit logs, and returns
    what is wrong, or "".
    """

    about: str
    seeds: Callable[[Path], None]  # writes valid inputs, files or folders, into a folder
    run: Try
    memory_mb: int = 1024  # that an input may take


class Outcome(NamedTuple):
    """The outcome of an input: READ, REFUSED with the toolkit's own error, or a fault."""

    kind: str
    where: str = ""  # function of asrkit, to recognise the same fault
    detail: str = ""

    @property
    def is_fault(self) -> bool:
        return self.kind not in (READ, REFUSED)

    @property
    def signature(self) -> str:
        return f"{self.kind} {self.where}".strip()


class OutsideError(BaseException):
    """A forbidden act: a file written outside the folder, a program, a connection."""


def outcomes(
    part: Part, inputs: Iterable[tuple[int, Callable[[Path], Path]]], folder: Path
) -> Iterator[tuple[int, Outcome]]:
    """Try inputs in one forked process until it ends or an input takes too long.

    Args:
        inputs: numbers, and functions that write an input into a folder and return its path.
        folder: folder that the inputs may write to.

    Yields:
        Number and outcome of each input that was tried.
    """
    folder.mkdir(exist_ok=True)
    reader, writer = os.pipe()
    noise = folder / "noise.txt"
    sys.stdout.flush()
    process = os.fork()
    if not process:
        try:
            os.close(reader)
            _confine(part, folder, noise)
            for number, write in inputs:
                os.write(writer, json.dumps([number]).encode() + b"\n")
                outcome = _tried(part, write, folder)
                os.write(writer, json.dumps([number, *outcome]).encode() + b"\n")
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writer)
    number, waited, cpu, rest = None, 0.0, 0.0, b""
    try:
        while True:
            ready, _, _ = select.select([reader], [], [], WAIT_SECONDS)
            waited += 0 if ready else WAIT_SECONDS  # not a clock: this process may be suspended
            if ready:
                data = os.read(reader, 1 << 16)
                if not data:
                    break
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    found = json.loads(line)
                    waited, cpu = 0.0, _cpu_seconds(process)
                    number = found[0] if len(found) == 1 else None
                    if len(found) > 1:
                        yield found[0], Outcome(*found[1:])
            elif number is not None and (
                _cpu_seconds(process) - cpu > CPU_SECONDS or waited > WALL_SECONDS
            ):
                os.kill(process, signal.SIGABRT)  # faulthandler writes the stack
                time.sleep(0.5)
                os.kill(process, signal.SIGKILL)
                yield number, Outcome("hang", *_stack(noise))
                number = None
                break
    finally:
        if sys.exc_info()[0] is GeneratorExit:
            os.kill(process, signal.SIGKILL)
        os.close(reader)
        _, status = os.waitpid(process, 0)
    if number is not None:
        name = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "exit"
        yield number, Outcome(f"crash {name}", *_stack(noise))


def _confine(part: Part, folder: Path, noise: Path) -> None:
    """Limit this process: address space, files, and acts that Python audits."""
    os.chdir(folder)
    os.environ |= dict.fromkeys(("HOME", "TMPDIR", "TORCHINDUCTOR_CACHE_DIR"), str(folder))
    tempfile.tempdir = str(folder)
    sys.dont_write_bytecode = True
    errors = os.open(noise, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (0, 1, 2):
        os.dup2(errors if stream else os.open(os.devnull, os.O_RDONLY), stream)
    faulthandler.enable(all_threads=False)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + (part.memory_mb << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 28, 1 << 28))
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


def _tried(part: Part, write: Callable[[Path], Path], folder: Path) -> Outcome:
    """Write an input, and let the part read it."""
    inside = folder / "inside"
    shutil.rmtree(inside, ignore_errors=True)
    inside.mkdir()
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    errors = logging.Handler(logging.ERROR)  # exceptions of threads and tasks
    traces: list[str] = []
    errors.emit = lambda record: traces.append(errors.format(record))  # type: ignore[method-assign]
    logging.getLogger("asrkit").addHandler(handler)
    logging.getLogger().addHandler(errors)
    path = write(inside)
    try:
        problem = part.run(path, said)
        if traces:
            return Outcome("logged", traces[0].splitlines()[-1][:60], traces[0][-4000:])
        return Outcome("wrong", problem.partition(":")[0], problem) if problem else Outcome(READ)
    except MemoryError as error:
        return Outcome("memory", *_frames(error))
    except UserError as error:
        text = str(error)
        lines = text.splitlines()
        if not 0 < len(lines) <= MOST_LINES or len(max(lines, key=len)) > LONGEST_LINE:
            return Outcome("message", _frames(error)[0], text[:3000])
        if printable("".join(lines)) != "".join(lines):
            return Outcome("message not printable", _frames(error)[0], repr(text[:3000]))
        return Outcome(REFUSED, "", text)
    except OSError as error:  # commands print it in a line
        if error.errno is None or error.filename is None:
            return Outcome(type(error).__name__, *_frames(error))
        return Outcome(REFUSED, "", str(error))
    except OutsideError as error:
        return Outcome("outside", *_frames(error))
    except BaseException as error:
        return Outcome(type(error).__name__, *_frames(error))
    finally:
        logging.getLogger("asrkit").removeHandler(handler)
        logging.getLogger().removeHandler(errors)


def _frames(error: BaseException) -> tuple[str, str]:
    """Return the last function of asrkit in a traceback, and the traceback."""
    own = [
        f"{each.filename.rpartition('asrkit/')[2]}:{each.name}"
        for each in traceback.extract_tb(error.__traceback__)
        if "/asrkit/" in each.filename
    ]
    return own[-1] if own else "", "".join(traceback.format_exception(error))[-4000:]


def _stack(noise: Path) -> tuple[str, str]:
    """Return the last function of asrkit in faulthandler's stack, and the stack."""
    text = noise.read_text(errors="replace") if noise.exists() else ""
    text = text[max(0, text.rfind("Fatal Python error"), len(text) - 4000) :][:4000]
    own = [line for line in text.splitlines() if "/asrkit/" in line]
    if not own:
        return "", text
    name = own[0].partition("/asrkit/")[2].split('"')[0]
    return f"{name}:{own[0].split()[-1]}", text


def _cpu_seconds(process: int) -> float:
    """Return the CPU time of a process."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
