"""Uploads, each decoded in another process with limited memory and time."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from anyio import BrokenWorkerProcess, CapacityLimiter, fail_after, to_process

from asrkit.audio.samples import MAX_CHANNELS, MAX_RATE, MIN_RATE
from asrkit.errors import UserError, printable
from asrkit.serve.calls import MOST_CHANNELS
from asrkit.serve.decode import BLOCK_S, DTYPE, GO, HEADER, Job, decode
from asrkit.serve.server import RefusedError, Server

KEY_BYTES = 16
BLOCK_BYTES = 1 << 18  # of samples that are read at a time
MAX_WARNINGS = 10  # for each file
LONGEST = 300  # characters of a warning


class Decoding:
    """A file that is being decoded.

    Attributes:
        sample_rate: Hz.
        channels: number of channels, 1 if they are mixed.
        num_samples: number of samples of the blocks so far.
        warnings: a line for each part of the file that was not read; complete after `blocks`.
    """

    def __init__(self, server: Server, limiter: CapacityLimiter, split: bool) -> None:
        self._limits, self._limiter, self._split = server.limits, limiter, split
        self.sample_rate = self.num_samples = 0
        self.channels, self.warnings = 1, list[str]()
        self._source: asyncio.Future[asyncio.StreamReader] = asyncio.Future()
        self._writers: list[asyncio.StreamWriter] = []  # closed last: data may wait to be read
        self._work: asyncio.Task[list[str]]
        self._has_place = False  # whether a process starts, or has started

    @property
    def seconds(self) -> float:
        """Length of the blocks so far."""
        return self.num_samples / self.sample_rate

    async def run(self, path: Path) -> list[str]:
        """Decode a file in another process, which connects to a port of this one."""
        key = secrets.token_bytes(KEY_BYTES)

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, EOFError), fail_after(limits.header_s):
                if await reader.readexactly(KEY_BYTES) == key and not self._source.done():
                    self._writers.append(writer)
                    self._source.set_result(reader)
                    listener.close()
                    writer.write(GO)
                    return
            writer.close()  # not the process

        limits = self._limits
        async with self._limiter:
            self._has_place = True
            listener = await asyncio.start_server(take, "127.0.0.1", 0, limit=BLOCK_BYTES)
            try:
                port = listener.sockets[0].getsockname()[1]
                memory = limits.decode_mb * 1_000_000
                job = Job(str(path), self._split, port, key, memory, limits.decode_s)
                one = CapacityLimiter(1)  # anyio's own has as many places as cores
                return await to_process.run_sync(decode, job, cancellable=True, limiter=one)
            finally:
                listener.close()

    async def start(self, path: Path) -> None:
        """Start decoding: wait for a process, and for the file's header.

        Raises:
            UserError: for a file that cannot be decoded within the limits.
        """
        self._work = asyncio.ensure_future(self.run(path))
        await self._begun()
        header = await self._read(HEADER.size)
        if len(header) < HEADER.size:
            raise await self._failure()
        self.sample_rate, known, self.channels = HEADER.unpack(header)
        if not (MIN_RATE <= self.sample_rate <= MAX_RATE and 1 <= self.channels <= MAX_CHANNELS):
            raise broken("sent a wrong header")
        if self.channels > MOST_CHANNELS:
            text = f"at most {MOST_CHANNELS} channels can be split, the file has {self.channels}"
            raise UserError(text)
        self._check_length(known)

    async def _begun(self) -> None:
        """Wait until a process has connected, or has failed."""
        either: list[asyncio.Future[Any]] = [self._work, self._source]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """End the process if it decodes still."""
        try:
            if self._has_place:  # anyio does not end a process that is cancelled while it starts
                await self._begun()
        finally:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        self._source.cancel()
        for writer in self._writers:
            writer.close()

    async def blocks(self) -> AsyncIterator[np.ndarray]:
        """Yield blocks of float32 samples (n, channels), decoded as fast as they are read.

        Raises:
            UserError: for a file that cannot be decoded within the limits.
        """
        item = DTYPE.itemsize * self.channels
        size = max(1, min(BLOCK_BYTES // item, round(BLOCK_S * self.sample_rate))) * item
        while data := await self._read(size):
            if len(data) % item:
                raise await self._failure()
            self.num_samples += len(data) // item
            self._check_length(self.num_samples)
            yield np.frombuffer(data, DTYPE).reshape(-1, self.channels)
        try:
            problems = await self._work
        except Exception:
            raise await self._failure() from None
        self.warnings += [printable(each[:LONGEST]) for each in problems[:MAX_WARNINGS]]

    def _check_length(self, samples: int) -> None:
        """Raise RefusedError for a file that is too long."""
        seconds, longest = samples / self.sample_rate, self._limits.call_s
        if seconds > longest:
            text = f"a file may have at most {longest:.0f} s of audio, got {seconds:.0f} s or more"
            raise RefusedError(413, "too_long", text)

    async def _read(self, size: int) -> bytes:
        """Return the next bytes of the process, fewer at their end.

        Raises:
            RefusedError: if none come in time.
        """
        if not self._source.done():
            return b""
        try:
            with fail_after(self._limits.decode_s):
                return await self._source.result().readexactly(size)
        except TimeoutError:
            raise too_much(f"{self._limits.decode_s:g} s") from None
        except asyncio.IncompleteReadError as error:
            return error.partial
        except OSError:
            return b""

    async def _failure(self) -> UserError:
        """Return an error that says why the process has ended."""
        try:
            with fail_after(self._limits.decode_s):
                await self._work
        except UserError as error:
            return UserError(printable(str(error)))
        except TimeoutError:  # its own, or this one's
            return too_much(f"{self._limits.decode_s:g} s")
        except MemoryError:
            return too_much(f"{self._limits.decode_mb} MB of memory")
        except BrokenWorkerProcess:
            return broken("has ended")
        return broken("sent wrong samples")


def broken(what: str) -> RefusedError:
    return RefusedError(400, "decoding", f"decoding the file failed: the decoder process {what}")


def too_much(what: str) -> RefusedError:
    return RefusedError(413, "decoding", f"decoding the file takes more than {what}")


class Decoders:
    """Processes that decode one upload each.

    Args:
        server: server, for the limits of the processes and the metrics.
    """

    def __init__(self, server: Server) -> None:
        self.server, self.limiter = server, CapacityLimiter(server.limits.decoders)
        self._count = 0  # uploads that are decoded, or wait for it

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
        limits = self.server.limits
        if self._count >= limits.decoders + limits.uploads_waiting:
            self.server.figures.refused.labels("uploads").inc()
            text = f"{limits.uploads_waiting} uploads are waiting already: try again later"
            raise RefusedError(503, "uploads", text)
        self._count += 1
        decoding = Decoding(self.server, self.limiter, split)
        try:
            await decoding.start(path)
            yield decoding
        finally:
            try:
                await decoding.close()
            finally:
                self._count -= 1
