"""Callers of a server, many at a time and over real sockets, for bench_serve.py and ttfs.py.

They talk at the speed of speech, each a recording after another, and begin one by one over the
length of a call. Packets are masked once for all calls, which makes a client cheap. Delays are from
the packet that completes a chunk to the message with its text, once all callers talk, and from the
end of the audio to the last message. Others misbehave: they leave in the middle of a call, stop
reading, cut the connection, or send garbage, or audio as fast as they can.
"""

import asyncio
import itertools
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from protocols import RATE, REACH, Line, Protocol
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from asrkit.data.inputs import jobs_of
from asrkit.errors import UserError

RECORDINGS = 40  # of the manifest
LOST = (OSError, KeyError, RuntimeError, WebSocketException, asyncio.TimeoutError)
MISDEEDS = "leaves", "deaf", "dies", "garbage", "floods"


class Talk(NamedTuple):
    """The outcome of one recording of one client."""

    begin: float  # seconds from the connection to the answer of the first message
    partials: list[float]  # seconds from the packet that completes a chunk to its message
    final: float  # seconds from the end of the audio to the last message
    late: float  # seconds that the client itself was behind, at most
    text: str
    recording: int


async def talk(line: Line, packets: list[bytes], recording: int, since: float = 0.0) -> Talk:
    """Stream a recording as a call; live texts count from `since`, seconds of time.monotonic."""
    sent: list[float] = []  # when each packet was
    partials, finals, late, seen = [], [], 0.0, 0
    asked = time.monotonic()
    async with connect(line.address, max_size=None, compression=None) as client:
        await begin(client, line.protocol)
        began = time.monotonic()

        async def send() -> None:
            nonlocal late
            for number, packet in enumerate(packets, 1):
                due = began + number * line.packet / RATE
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                late = max(late, time.monotonic() - due)
                client.transport.write(packet)
                sent.append(time.monotonic())
            await client.send(line.protocol.end)

        sending = asyncio.create_task(send())
        try:
            async for got in messages(client, line.protocol):
                now = time.monotonic()
                finals += final_text(got)
                packet = (got.get("recognized", 0) + REACH) // line.packet
                if got["type"] == "partial" and got["recognized"] > seen and packet < len(sent):
                    partials += [now - sent[packet]] if sent[packet] >= since else []
                    seen = got["recognized"]
            await sending
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    return Talk(began - asked, partials, now - sent[-1], late, " ".join(finals), recording)


async def begin(client: ClientConnection, protocol: Protocol) -> None:
    """Begin a call."""
    if protocol.start:
        await client.send(protocol.start)
        await client.recv()


async def messages(client: ClientConnection, protocol: Protocol) -> AsyncIterator[dict[str, Any]]:
    """Return the messages of a call, up to the last one, after which a client closes."""
    number = 0
    async for message in client:
        number += 1
        got = protocol.read(str(message), number)
        if got["type"] == "error":
            raise RuntimeError(got["message"])
        yield got
        if got["type"] == "ended":
            return


def final_text(message: dict[str, Any]) -> list[str]:
    """Return the text of a message that no later one changes, if it has one."""
    return [message["text"]] if message["type"] != "partial" and "text" in message else []


async def callers(
    line: Line, recordings: list[np.ndarray], count: int, seconds: float, lost: list[str],
    misbehaving: int = 0,
) -> list[Talk]:  # fmt: skip
    """Have clients talk, `count` for some seconds; append a line to `lost` for each lost call."""
    others = [asyncio.create_task(troublemaker(line, recordings)) for _ in range(misbehaving)]
    packets = [line.packets(samples) for samples in recordings]
    call_s = float(np.mean([len(samples) / RATE for samples in recordings]))
    talks, since = list[Talk](), time.monotonic() + call_s

    async def caller(number: int) -> None:
        await asyncio.sleep(call_s * number / count)
        for call in itertools.count(7 * number):
            if time.monotonic() >= since + seconds:
                return
            recording = call % len(recordings)
            try:
                talks.append(await talk(line, packets[recording], recording, since))
            except LOST as error:  # among them a missed ping
                lost.append(f"{time.strftime('%X')} {error!r}")
                await asyncio.sleep(1.0)

    await asyncio.gather(*map(caller, range(count)))
    for task in others:
        if not task.cancel():
            task.result()
    return talks


async def misbehave(line: Line, samples: np.ndarray, draw: random.Random) -> None:
    """Make a call of a misbehaving client."""
    deed = draw.choice(MISDEEDS)
    async with connect(line.address, max_size=None, compression=None) as client:
        await begin(client, line.protocol)
        for packet in line.packets(samples[: draw.randrange(len(samples))]):
            client.transport.write(packet)
            await asyncio.sleep(line.packet / RATE if deed in ("leaves", "dies") else 0.0)
        if deed == "deaf":  # the buffers of both sides fill up
            client.transport.pause_reading()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(client.send(200 * samples.tobytes()[:1_000_000]), 10)
        elif deed == "garbage":
            await client.send(draw.choice(["{", '{"type": "start"}', "\0" * 1000, "[" * 9999]))
            await client.recv()
        elif deed == "floods":
            for _ in range(50):
                await client.send(samples.tobytes()[:1_000_000])
        elif deed == "dies":
            client.transport.abort()


async def troublemaker(line: Line, recordings: list[np.ndarray]) -> None:
    """Misbehave again and again."""
    draw = random.Random()
    while True:
        # AttributeError: websockets aborts a connection that the server has closed.
        with suppress(*LOST, AttributeError):
            await misbehave(line, draw.choice(recordings), draw)
        await asyncio.sleep(draw.random())


def family(process: int) -> list[int]:
    """Return a process and those that it has started."""
    found = [process]
    with suppress(OSError):  # the process has ended
        for started in Path(f"/proc/{process}/task").glob("*/children"):
            found += [each for child in started.read_text().split() for each in family(int(child))]
    return found


def usage(process: int) -> tuple[float, float]:
    """Return CPU seconds and resident MB of a process and of those that it has started."""
    seconds = memory = 0.0
    for each in family(process):
        with suppress(OSError):
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(") ")[2].split()
            seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            memory += int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return seconds, memory


def read(manifest: Path) -> list[np.ndarray]:
    """Return the first recordings of a manifest, int16 at 16 kHz; exit if one cannot be read."""
    try:
        jobs = jobs_of([], str(manifest), [])[:RECORDINGS]
        samples = [job.load() for job in jobs]
    except UserError as error:
        sys.exit(str(error))
    return [np.clip(np.rint(each * 32768), -32768, 32767).astype(np.int16) for each in samples]


@contextmanager
def serving(
    command: list[str], environment: dict[str, str] | None = None
) -> Iterator[tuple[str, int, str]]:
    """A context manager of a server process: its address, its process id, and its first output.

    Args:
        command: arguments of Python.
        environment: variables beside those of this process.
    """
    with tempfile.TemporaryFile("a+") as file:  # "a": the server writes where it wrote before
        process = subprocess.Popen(
            [sys.executable, *command], stderr=file, env=os.environ | (environment or {})
        )
        try:
            told = ""
            while (found := re.search(r"http://(\S+)/\n", told)) is None:
                over = process.poll() is not None
                file.seek(0)
                told = file.read()
                if over:
                    sys.exit(told)
                time.sleep(0.05)
            yield f"ws://{found[1]}/v1/stream", process.pid, told.strip()
        finally:
            process.terminate()
            process.wait()


def in_trees(command: list[str], trees: list[str]) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Return arguments of Python and variables with which checkouts of asrkit run a command.

    Args:
        command: arguments of Python.
        trees: NAME=FOLDER of each checkout beside this one, whose name is asrkit.
    """
    folders = dict(each.split("=", 1) for each in trees) | {
        "asrkit": str(Path(__file__).parents[1])
    }
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    # The current folder would come before the tree.
    safe = threads | {"PYTHONSAFEPATH": "1"}
    return {name: (command, safe | {"PYTHONPATH": path}) for name, path in folders.items()}


async def alone(line: Line, samples: np.ndarray) -> str:
    """Return the text of a recording that is sent as fast as it is taken."""
    # The processes of --workers load their models first.
    async with connect(line.address, max_size=None, compression=None, open_timeout=120) as client:
        await begin(client, line.protocol)
        client.transport.write(b"".join(line.packets(samples)))
        await client.send(line.protocol.end)
        got = [message async for message in messages(client, line.protocol)]
    return " ".join(text for each in got for text in final_text(each))
