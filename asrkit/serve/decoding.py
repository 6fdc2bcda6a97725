"""Uploads decoded in processes of their own, whose memory and time are limited.

What comes from such a process is checked like what comes from a client.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import numpy as np

from asrkit.audio.file import MAX_RATE, MIN_RATE
from asrkit.audio.io import BLOCK_VALUES
from asrkit.errors import UserError, printable
from asrkit.serve.decoder import (
    DTYPE,
    END,
    ERROR,
    FORMAT,
    FRAME,
    HEADER,
    NO_MEMORY,
    SAMPLES,
    UNKNOWN,
    WARNING,
)
from asrkit.serve.server import Limits, RefusedError, Server

COMMAND = (sys.executable, "-m", "asrkit.serve.decoder")
LARGEST = {  # bytes of a frame
    HEADER: FORMAT.size, SAMPLES: DTYPE.itemsize * BLOCK_VALUES, WARNING: 10_000, ERROR: 10_000,
}  # fmt: skip
MAX_WARNINGS = 10  # of a file
BYTES_PER_SECOND = 48_000 * 2 * 4  # of what FFmpeg decodes into a temporary file


class Decoding:
    """A file that is being decoded.

    Attributes:
        sample_rate: Hz.
        num_samples: by the file's header, or of the blocks so far if the header does not state it.
        warnings: a line for each thing that is not read of the file; complete after `blocks`.
    """

    def __init__(self, process: Process, limits: Limits) -> None:
        self._process, self._limits = process, limits
        self.sample_rate = self.num_samples = 0
        self.warnings: list[str] = []
        self._is_stated = True

    @property
    def seconds(self) -> float:
        """Length by the file's header, or of the blocks so far."""
        return self.num_samples / self.sample_rate

    async def start(self, path: Path) -> None:
        """Have a file decoded; waits for its header.

        Raises:
            UserError: for a file that cannot be decoded within the limits.
        """
        assert self._process.stdin is not None  # for mypy
        self._process.stdin.write(os.fsencode(path) + b"\n")
        kind, data = await self._frame()
        if kind != HEADER or len(data) != FORMAT.size:
            raise self._broken("no header")
        self.sample_rate, self.num_samples = FORMAT.unpack(data)
        if not MIN_RATE <= self.sample_rate <= MAX_RATE or not self.num_samples:
            raise self._broken("a wrong header")
        if self.num_samples == UNKNOWN:
            self.num_samples, self._is_stated = 0, False
        self._check_length()

    async def blocks(self) -> AsyncIterator[np.ndarray]:
        """Float32 samples (n,), decoded as fast as they are taken.

        Raises:
            UserError: for a file that cannot be decoded within the limits.
        """
        count = 0
        while (frame := await self._frame())[0] != END:
            kind, data = frame
            if kind == WARNING and len(self.warnings) < MAX_WARNINGS:
                self.warnings.append("the file " + printable(data.decode(errors="replace")))
                continue
            count += len(data) // DTYPE.itemsize
            if kind != SAMPLES or len(data) % DTYPE.itemsize:
                raise self._broken("wrong samples")
            if not self._is_stated:
                self.num_samples = count
                self._check_length()
            elif count > self.num_samples:
                raise self._broken("wrong samples")
            yield np.frombuffer(data, DTYPE)

    def _check_length(self) -> None:
        """Raises RefusedError for a file that is too long."""
        if self.seconds > (longest := self._limits.call_s):
            more = "" if self._is_stated else "at least "
            text = f"{more}{self.seconds:.0f} s of audio: at most {longest:.0f} are taken"
            raise RefusedError(413, "too_long", text)

    async def _frame(self) -> tuple[bytes, bytes]:
        """The next frame of the process: its kind, and its data.

        Raises:
            UserError: if it is an error, or none comes.
        """
        try:
            kind, data = await asyncio.wait_for(self._read(), self._limits.decode_s)
        except asyncio.TimeoutError:
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
        pipe = self._process.stdout
        assert pipe is not None  # for mypy
        kind, size = FRAME.unpack(await pipe.readexactly(FRAME.size))
        if size > LARGEST.get(kind, 0):
            raise self._broken("a wrong frame")
        return kind, await pipe.readexactly(size)

    async def _death(self) -> UserError:
        """Why the process has ended."""
        try:
            code = await asyncio.wait_for(self._process.wait(), self._limits.decode_s)
        except asyncio.TimeoutError:  # it has closed its pipe, and goes on
            return self._too_long()
        if code == -getattr(signal, "SIGXCPU", 0):
            return self._too_long()
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"status {code}"
        return self._broken(name)

    def _too_long(self) -> RefusedError:
        text = f"decoding the file takes more than {self._limits.decode_s:g} s"
        return RefusedError(413, "decoding", text)

    def _broken(self, what: str) -> RefusedError:
        return RefusedError(400, "decoding", f"the file broke what decodes it ({what})")


class Decoders:
    """Processes that decode uploads, each a single one; another is ready then.

    Args:
        server: whose limits say how many at a time, and what each may use.
    """

    def __init__(self, server: Server) -> None:
        self.limits, self.refused = server.limits, server.figures.refused.labels("uploads")
        self.waiting = 0
        self._spare: list[Process] = []  # that wait for a file
        self._free = asyncio.Semaphore(self.limits.decoders)

    @asynccontextmanager
    async def decoding(self, path: Path) -> AsyncIterator[Decoding]:
        """A file's header and samples; waits for a free process.

        Raises:
            RefusedError: if too many wait already.
            UserError: for a file that cannot be decoded within the limits.
        """
        if self._free.locked() and self.waiting >= self.limits.uploads_waiting:
            self.refused.inc()
            raise RefusedError(503, "uploads", f"{self.waiting} uploads are waiting already")
        self.waiting += 1
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
        try:
            self._spare = [each for each in self._spare if each.returncode is None]
            process = self._spare.pop() if self._spare else await self._started()
            try:
                decoding = Decoding(process, self.limits)
                await decoding.start(path)
                yield decoding
            finally:
                await stop(process)
            if not self._spare:
                self._spare.append(await self._started())
        finally:
            self._free.release()

    async def close(self) -> None:
        """End the processes that wait for a file."""
        for process in self._spare:
            await stop(process)

    async def _started(self) -> Process:
        memory = self.limits.decode_mb * 1_000_000
        seconds = max(1, round(self.limits.decode_s))
        storage = round(self.limits.call_s * BYTES_PER_SECOND)
        return await asyncio.create_subprocess_exec(
            *COMMAND, str(memory), str(seconds), str(storage), stdin=PIPE, stdout=PIPE,
            cwd=Path(__file__).parents[2],  # where python -m finds asrkit
            # Every thread of a library's pool takes memory.
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip


async def stop(process: Process) -> None:
    with suppress(ProcessLookupError):  # it has ended
        process.kill()
    await process.communicate()  # not wait: what is still in its pipe keeps it from being closed
