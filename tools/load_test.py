"""Measure how long the clients of `asrkit serve` wait, many at a time, over real sockets.

    python tools/load_test.py --model small-en-alnum --streams 10,50,100 data/an4/dev.jsonl
    python tools/load_test.py --streams 8 --rounds 30 --seconds 60 --misbehaving 8 dev.jsonl

Clients talk at the speed of speech, each a recording after another, in packets of 100 ms. They
begin one by one over the length of a call. Delays are from the packet that completes a chunk to the
message with its text, once all clients talk, and from the end of the audio to the last message.
Every text is compared with that of the recording alone. Processor time is that of the server.

With --misbehaving further clients leave in the middle of a call, stop reading, cut the connection,
or send garbage, or audio as fast as they can. The exit status is 1 if a text differs or a call is
lost.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from asrkit.cli import table
from asrkit.data.inputs import jobs_of
from asrkit.errors import UserError

RATE = 16_000
PACKET = RATE // 10  # samples
RECORDINGS = 40  # of the manifest
LOST = (OSError, KeyError, RuntimeError, WebSocketException, asyncio.TimeoutError)
REACH = 240  # samples after a chunk's last frame begins that the frame needs
MISDEEDS = "leaves", "deaf", "dies", "garbage", "floods"
TITLES = (
    "streams", "calls", "partial p50, p95, p99 ms", "last p50, p95, p99 ms", "server's cores",
    "MB", "clients late ms", "misdeeds", "texts that differ", "calls lost",
)  # fmt: skip


class Talk(NamedTuple):
    """The outcome of one recording of one client."""

    partials: list[float]  # seconds from the packet that completes a chunk to its message
    final: float  # seconds from the end of the audio to the last message
    late: float  # seconds that the client itself was behind, at most
    text: str
    recording: int


async def talk(address: str, samples: np.ndarray, recording: int, since: float = 0.0) -> Talk:
    """Stream a recording as a call; live texts count from `since`, seconds of time.monotonic."""
    sent: list[float] = []  # when each packet was
    partials, finals, late, seen = [], [], 0.0, 0
    async with connect(address, max_size=None, compression=None) as client:
        await client.send('{"type": "start"}')
        await client.recv()
        began = time.monotonic()

        async def send() -> None:
            nonlocal late
            for number, start in enumerate(range(0, len(samples), PACKET), 1):
                due = began + number * PACKET / RATE
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                late = max(late, time.monotonic() - due)
                await client.send(samples[start : start + PACKET].tobytes())
                sent.append(time.monotonic())
            await client.send('{"type": "end"}')

        sending = asyncio.create_task(send())
        try:
            async for message in client:
                now, got = time.monotonic(), json.loads(message)
                if got["type"] == "error":
                    raise RuntimeError(got["message"])
                if got["type"] == "final":
                    finals.append(got["text"])
                packet = (got.get("recognized", 0) + REACH) // PACKET
                if got["type"] == "partial" and got["recognized"] > seen and packet < len(sent):
                    partials += [now - sent[packet]] if sent[packet] >= since else []
                    seen = got["recognized"]
            await sending
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    return Talk(partials, now - sent[-1], late, " ".join(finals), recording)


async def callers(
    address: str, recordings: list[np.ndarray], count: int, seconds: float, lost: list[str]
) -> list[Talk]:
    """Have clients talk, `count` for some seconds; append a line to `lost` for each lost call."""
    call_s = float(np.mean([len(samples) / RATE for samples in recordings]))
    talks, since = list[Talk](), time.monotonic() + call_s

    async def caller(number: int) -> None:
        await asyncio.sleep(call_s * number / count)
        for call in itertools.count(7 * number):
            if time.monotonic() >= since + seconds:
                return
            recording = call % len(recordings)
            try:
                talks.append(await talk(address, recordings[recording], recording, since))
            except LOST as error:  # among them a missed ping
                lost.append(f"{time.strftime('%X')} {error!r}")
                await asyncio.sleep(1.0)

    await asyncio.gather(*map(caller, range(count)))
    return talks


async def misbehave(address: str, samples: np.ndarray, draw: random.Random) -> None:
    """Make a call of a misbehaving client."""
    deed = draw.choice(MISDEEDS)
    async with connect(address, max_size=None, compression=None) as client:
        await client.send('{"type": "start"}')
        for place in range(0, draw.randrange(len(samples)), PACKET):
            await client.send(samples[place : place + PACKET].tobytes())
            await asyncio.sleep(0.1 if deed in ("leaves", "dies") else 0.0)
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


async def troublemaker(address: str, recordings: list[np.ndarray], deeds: list[int]) -> None:
    """Misbehave again and again; count that in `deeds`."""
    draw = random.Random()
    while True:
        # AttributeError: websockets aborts a connection that the server has closed.
        with suppress(*LOST, AttributeError):
            await misbehave(address, draw.choice(recordings), draw)
        deeds.append(0)
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


def percentiles(values: list[float]) -> str:
    """Return median, 95 % and 99 %, in ms."""
    if len(values) < 2:
        return "-"
    cuts = statistics.quantiles(values, n=100)
    return ", ".join(f"{1000 * cuts[each - 1]:.0f}" for each in (50, 95, 99))


async def measure(
    address: str, server: int, recordings: list[np.ndarray], options: argparse.Namespace
) -> int:
    """Run the clients, print a line for each round, and return the number of bad calls."""
    # One caller at a time: what is compared with; tests compare that with `transcribe`.
    texts = [await alone(address, samples) for samples in recordings]
    bad, deeds, counts = 0, list[int](), [*map(int, options.streams.split(","))]
    others = [
        asyncio.create_task(troublemaker(address, recordings, deeds))
        for _ in range(options.misbehaving)
    ]
    print(table.head(TITLES))
    for streams in counts * options.rounds:
        (cpu, _), started, lost = usage(server), time.monotonic(), list[str]()
        talks = await callers(address, recordings, streams, options.seconds, lost)
        after, memory = usage(server)
        wrong = sum(each.text != texts[each.recording] for each in talks)
        cells = [
            streams, len(talks), percentiles([s for each in talks for s in each.partials]),
            percentiles([each.final for each in talks]),
            f"{(after - cpu) / (time.monotonic() - started):.2f}", round(memory),
            round(1000 * max((each.late for each in talks), default=0.0)), len(deeds), wrong,
            len(lost),
        ]  # fmt: skip
        print(table.row(cells), flush=True)
        print("".join(f"a call is lost: {line}\n" for line in lost), file=sys.stderr, end="")
        bad += wrong + len(lost)
    for task in others:
        if not task.cancel():
            task.result()
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="small-en-alnum")
    parser.add_argument("--streams", default="10,50,100")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds of each row")
    parser.add_argument("--rounds", type=int, default=1, help="rows for each number of streams")
    parser.add_argument("--serve", default="", help="more options of asrkit serve, in one string")
    parser.add_argument("--misbehaving", type=int, default=0, help="clients that misbehave")
    parser.add_argument("manifest", type=Path)
    options = parser.parse_args()
    recordings = read(options.manifest)
    command = [
        "-m", "asrkit", "serve", "--port", "0", "--streams", "1000", "--model", options.model
    ]  # fmt: skip
    with serving([*command, *options.serve.split()]) as (address, process, told):
        print(f"{told}\n")
        return int(asyncio.run(measure(address, process, recordings, options)) > 0)


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


async def alone(address: str, samples: np.ndarray) -> str:
    """Return the text of a recording that is sent as fast as it is taken."""
    # The processes of --workers load their models first.
    async with connect(address, max_size=None, compression=None, open_timeout=120) as client:
        await client.send('{"type": "start"}')
        await client.send(samples.tobytes())
        await client.send('{"type": "end"}')
        messages = [json.loads(message) async for message in client]
    return " ".join(each["text"] for each in messages if each["type"] == "final")


if __name__ == "__main__":
    sys.exit(main())
