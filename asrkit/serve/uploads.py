"""Uploads, each decoded in a separate process with limited memory and time.

The server checks the output of such a process like the messages of a client. A quarter of the
processes are reserved for short files, so that these do not wait for long ones.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import numpy as np
from anyio import fail_after

from asrkit.audio.files import BLOCK_VALUES
from asrkit.audio.samples import MAX_CHANNELS, MAX_RATE, MIN_RATE
from asrkit.errors import UserError, printable
from asrkit.serve.admission import CLIENT, LOCAL
from asrkit.serve.calls import MOST_CHANNELS
from asrkit.serve.server import RefusedError, Server
from asrkit.serve.upload_process import (
    DTYPE,
    END,
    ERROR,
    FORMAT,
    FRAME,
    HEADER,
    LONG_S,
    NICE,
    NO_MEMORY,
    SAMPLES,
    SPLIT,
    UNKNOWN,
    WARNING,
    yield_to_others,
)

COMMAND = (sys.executable, "-m", "asrkit.serve.upload_process")
LARGEST = {  # bytes of a frame
    HEADER: FORMAT.size, SAMPLES: DTYPE.itemsize * BLOCK_VALUES, WARNING: 10_000, ERROR: 10_000,
}  # fmt: skip
MAX_WARNINGS = 10  # for each file
STORAGE = 0  # bytes that a process may write to a file: its output goes through a pipe
FAILED = "decoding the file failed: the decoder process"


class Decoding:
    """A file that is being decoded.

    Attributes:
        sample_rate: Hz.
        channels: number of channels, 1 if they are mixed.
        num_samples: number of samples by the file's header, or of the blocks so far if the header
            does not state it; after `blocks`, the number that was read.
        warnings: a line for each part of the file that was not read; complete after `blocks`.
    """

    def __init__(self, decoders: "Decoders", path: Path, split: bool = False) -> None:
        self._decoders, self._limits = decoders, decoders.limits
        self._path = path
        self._process: Process | None = None  # None while the file waits for a place
        self._is_long = False  # whether it has a place for long files
        self.sample_rate = self.num_samples = 0
        self.channels, self._split = 1, split
        self.warnings: list[str] = []
        self._is_stated = True

    @property
    def seconds(self) -> float:
        """Length by the file's header, or of the blocks so far."""
        return self.num_samples / self.sample_rate

    async def start(self) -> None:
        """Start decoding: wait for a process, and for the file's header.

        Raises:
            RefusedError: if too many uploads wait already.
            UserError: for a file that cannot be decoded within the limits.
        """
        await self._open()
        if self.seconds > LONG_S:
            await self._be_long()

    async def close(self) -> None:
        """End the process, and free its places."""
        process, self._process = self._process, None
        try:
            if process is not None:
                await self._decoders.leave(process)
        finally:
            if self._is_long:
                self._is_long = False
                self._decoders.leave_long()

    async def _open(self) -> None:
        self._process = await self._decoders.enter()
        assert self._process.stdin is not None  # for mypy
        lines = f"{self._path}\n{SPLIT if self._split else ''}\n"
        self._process.stdin.write(os.fsencode(lines))
        kind, data = await self._frame()
        if kind != HEADER or len(data) != FORMAT.size:
            raise self._broken("sent no header")
        self.sample_rate, self.num_samples, self.channels = FORMAT.unpack(data)
        if not MIN_RATE <= self.sample_rate <= MAX_RATE or not self.num_samples:
            raise self._broken("sent a wrong header")
        if not 1 <= self.channels <= (MAX_CHANNELS if self._split else 1):
            raise self._broken("sent a wrong header")
        if self.channels > MOST_CHANNELS:
            text = f"at most {MOST_CHANNELS} channels can be split, the file has {self.channels}"
            raise UserError(text)
        if self.num_samples == UNKNOWN:
            self.num_samples, self._is_stated = 0, False
        self._check_length()

    async def _be_long(self) -> bool:
        """Take a place for long files; return whether another process decodes the file anew.

        If the file has to wait for the place, it frees its process for short files meanwhile.
        """
        waits = not self._decoders.has_room_for_long
        if waits and (process := self._process) is not None:
            self._process = None
            await self._decoders.leave(process)
        await self._decoders.enter_long()
        self._is_long = True
        if waits:
            await self._open()
        return waits

    async def blocks(self) -> AsyncIterator[np.ndarray]:
        """Yield blocks of float32 samples (n, channels), decoded as fast as they are read.

        Raises:
            UserError: for a file that cannot be decoded within the limits.
        """
        taken = count = 0  # samples that were yielded, and samples from the current process
        while (frame := await self._frame())[0] != END:
            kind, data = frame
            if kind == WARNING and len(self.warnings) < MAX_WARNINGS:
                self.warnings.append("the file " + printable(data.decode(errors="replace")))
                continue
            count += len(data) // (DTYPE.itemsize * self.channels)
            if kind != SAMPLES or len(data) % (DTYPE.itemsize * self.channels):
                raise self._broken("sent wrong samples")
            if not self._is_stated:
                self.num_samples = max(count, taken)
                self._check_length()
            elif count > self.num_samples:
                raise self._broken("sent wrong samples")
            if count > taken:
                yield np.frombuffer(data, DTYPE).reshape(-1, self.channels)[taken - count :]
                taken = count
            if self.seconds > LONG_S and not self._is_long and await self._be_long():
                count = 0
        self.num_samples = taken  # fewer than the header states if the file is cut off

    def _check_length(self) -> None:
        """Raise RefusedError for a file that is too long."""
        if self.seconds > (longest := self._limits.call_s):
            more = "" if self._is_stated else "at least "
            text = (
                f"a file may have at most {longest:.0f} s of audio, got {more}{self.seconds:.0f} s"
            )
            raise RefusedError(413, "too_long", text)

    async def _frame(self) -> tuple[bytes, bytes]:
        """Return kind and data of the process's next frame.

        Raises:
            UserError: if the process reports an error, ends, or takes too long.
        """
        try:
            with fail_after(self._limits.decode_s):
                kind, data = await self._read()
        except TimeoutError:
            raise self._too_long() from None
        except asyncio.IncompleteReadError:
            raise await self._death() from None
        if kind == ERROR:
            raise UserError(printable(data.decode(errors="replace")))
        if kind == NO_MEMORY:
            text = f"decoding the file takes more than {self._limits.decode_mb} MB of memory"
            raise RefusedError(413, "decoding", text)
        return kind, data

    async def _read(self) -> tuple[bytes, bytes]:
        assert self._process is not None  # for mypy
        pipe = self._process.stdout
        assert pipe is not None
        kind, size = FRAME.unpack(await pipe.readexactly(FRAME.size))
        if size > LARGEST.get(kind, 0):
            raise self._broken("sent a wrong frame")
        return kind, await pipe.readexactly(size)

    async def _death(self) -> UserError:
        """Return an error that says why the process has ended."""
        assert self._process is not None  # for mypy
        try:
            with fail_after(self._limits.decode_s):
                code = await self._process.wait()
        except TimeoutError:  # the process has closed its pipe, but runs on
            return self._too_long()
        if code == -getattr(signal, "SIGXCPU", 0):
            return self._too_long()
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"status {code}"
        return self._broken(f"ended with {name}")

    def _too_long(self) -> RefusedError:
        text = f"decoding the file takes more than {self._limits.decode_s:g} s"
        return RefusedError(413, "decoding", text)

    def _broken(self, what: str) -> RefusedError:
        return RefusedError(400, "decoding", f"{FAILED} {what}")


class Decoders:
    """Processes that decode one upload each; a spare process is ready for the next upload.

    Args:
        server: server, for the limits of the processes and the metrics.
    """

    def __init__(self, server: Server) -> None:
        self.limits, self.refused = server.limits, server.figures.refused.labels("uploads")
        self._waiting, self._waiting_long = Counter[str](), 0  # by client address
        self._spare: list[Process] = []  # processes that wait for a file
        self._free = asyncio.Semaphore(self.limits.decoders)
        self._long = asyncio.Semaphore(self.limits.decoders - self.limits.decoders // 4)

    @asynccontextmanager
    async def decoding(self, path: Path, split: bool = False) -> AsyncIterator[Decoding]:
        """A context manager of a file's header and samples; it waits for a free process.

        Args:
            path: file to read.
            split: whether the channels are kept apart.

        Raises:
            RefusedError: if too many uploads wait already.
            UserError: for a file that cannot be decoded within the limits.
        """
        decoding = Decoding(self, path, split)
        try:
            await decoding.start()
            yield decoding
            if not self._spare:
                self._spare.append(await self._started())
        finally:
            await decoding.close()

    async def enter(self) -> Process:
        """Wait for a free process, and take it until `leave`.

        Raises:
            RefusedError: if too many uploads of all clients or of this client wait already.
        """
        address, most = CLIENT.get(), self.limits.uploads_waiting
        own = 0 if address in LOCAL else 2 * self._waiting[address]
        if self._free.locked():
            self._refuse_beyond(most, max(self._waiting.total(), own))
        self._waiting[address] += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= Counter([address])
        try:
            self._spare = [each for each in self._spare if each.returncode is None]
            return self._spare.pop() if self._spare else await self._started()
        except BaseException:
            self._free.release()
            raise

    async def leave(self, process: Process) -> None:
        """End a process, and free its place for another file."""
        try:
            await stop(process)
        finally:
            self._free.release()

    @property
    def has_room_for_long(self) -> bool:
        """Whether a long file gets a place without waiting."""
        return not self._long.locked()

    async def enter_long(self) -> None:
        """Take a place for long files until `leave_long`.

        Raises:
            RefusedError: if too many long files wait already.
        """
        if self._long.locked():
            self._refuse_beyond(self.limits.uploads_waiting // 2, self._waiting_long)
        self._waiting_long += 1
        try:
            await self._long.acquire()
        finally:
            self._waiting_long -= 1

    def leave_long(self) -> None:
        """Free a place for another long file."""
        self._long.release()

    def _refuse_beyond(self, most: int, waiting: int) -> None:
        if waiting >= most:
            self.refused.inc()
            text = f"{waiting} uploads are waiting already: try again later"
            raise RefusedError(503, "uploads", text)

    async def close(self) -> None:
        """End the processes that wait for a file."""
        for process in self._spare:
            await stop(process)

    async def _started(self) -> Process:
        memory = self.limits.decode_mb * 1_000_000
        seconds = max(1, round(self.limits.decode_s))
        process = await asyncio.create_subprocess_exec(
            *COMMAND, str(memory), str(seconds), str(STORAGE), stdin=PIPE, stdout=PIPE,
            cwd=Path(__file__).parents[2],  # where python -m finds asrkit
            # Each thread of a library's pool uses memory.
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        yield_to_others(process.pid, NICE)  # from its first import on
        return process


async def stop(process: Process) -> None:
    with suppress(ProcessLookupError):  # the process has ended
        process.kill()
    await process.communicate()  # not `wait`: unread data would keep the pipe open
