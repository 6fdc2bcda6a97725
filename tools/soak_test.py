"""Measure whether half an hour of misbehaving clients costs `asrkit serve` memory or delays others.

    python tools/soak_test.py --minutes 30 data/an4/dev.jsonl
    python tools/soak_test.py --minutes 60 --serve "--workers 2" --disturb-s 180 --redis DEV.jsonl

Some clients talk as in tools/load_test.py, and their texts and delays count. Other clients join and
leave in the middle of a call, stop reading, stop sending, or cut the connection and resume or not.
They also send a wrong sample rate, garbage, or audio as fast as they can. The tool prints a line
each minute. With --disturb-s the others reconnect, and SIGHUP replaces the server's processes from
time to time. With --redis the server's Redis is stopped and killed in turn with that. The exit
status is 1 if a text differs or a call is lost.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
from load_test import LOST, RATE, Talk, alone, percentiles, read, resident, serving, talk
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from asrkit.cli.table import head, row
from asrkit.errors import UserError
from asrkit.serve.client import RemoteSession
from asrkit.serve.dialects.messages import Start

TITLES = (
    "minute", "calls", "lost", "partial p50, p95, p99 ms", "texts that differ", "misdeeds", "MB",
)  # fmt: skip
PACKET = 1600
AWAY_S = 20.0  # time without Redis


async def talker(
    address: str, recordings: list[np.ndarray], number: int, talks: list[Talk], lost: list[str],
    reconnects: bool,
) -> None:  # fmt: skip
    """Stream one recording after another."""
    await asyncio.sleep(number * 0.3)
    while True:
        recording = (7 * number + len(talks)) % len(recordings)
        samples = recordings[recording]
        try:
            if reconnects:
                text = await asyncio.to_thread(returning, address, samples)
                talks.append(Talk([], 0.0, 0.0, text, recording))
            else:
                talks.append(await talk(address, samples, recording))
        except (*LOST, UserError) as error:
            lost.append(f"{time.strftime('%X')} {error!r}")
            await asyncio.sleep(1.0)


def returning(address: str, samples: np.ndarray) -> str:
    """Stream a recording at the speed of speech, with a client that reconnects."""
    session = RemoteSession(address, Start(type="start", sample_rate=RATE), RATE)
    for start in range(0, len(samples), PACKET):
        session.accept(samples[start : start + PACKET] / np.float32(32768))
        time.sleep(PACKET / RATE)
    return session.finish().text


class Redis:
    """A Redis server of our own, that goes away and comes back.

    Args:
        folder: folder for the key of the saved calls.
    """

    def __init__(self, folder: Path) -> None:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = one.getsockname()[1]
        (folder / "key").write_bytes(os.urandom(32))
        url = f"redis://127.0.0.1:{self.port}/0"
        self.options = ["--redis", url, "--state-key-file", str(folder / "key")]
        self.start()

    def start(self) -> None:
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    async def away(self, killed: bool) -> None:
        """Go away, by SIGKILL or without an answer, and come back."""
        self.process.send_signal(signal.SIGKILL if killed else signal.SIGSTOP)
        await asyncio.sleep(AWAY_S)
        if killed:
            self.process.wait()
            self.start()
        else:
            self.process.send_signal(signal.SIGCONT)


async def disturb(server: int, redis: Redis | None, seconds: float) -> None:
    """Replace the server's processes, and take its Redis away, in turn."""
    for number in itertools.count():
        await asyncio.sleep(seconds)
        if redis is not None and number % 3:
            await redis.away(number % 3 == 1)
        else:
            os.kill(server, signal.SIGHUP)


async def misbehave(address: str, samples: np.ndarray, draw: random.Random) -> None:
    """Make a call of a misbehaving client."""
    deed = draw.choice(["leaves", "silent", "deaf", "dies", "returns", "lies", "garbage", "floods"])
    start = {"type": "start"}
    if deed == "lies":
        start["sample_rate"] = draw.choice([8000, 11025, 44100, 48000, 15999, 7])
    async with connect(address, max_size=None, compression=None) as client:
        await client.send(json.dumps(start))
        end = draw.randrange(len(samples))
        for place in range(0, end, PACKET):
            await client.send(samples[place : place + PACKET].tobytes())
            await asyncio.sleep(0.1 if deed in ("leaves", "dies", "returns") else 0.0)
        if deed == "silent":
            await asyncio.sleep(draw.random() * 20)
        elif deed == "deaf":  # the buffers of both sides fill up
            client.transport.pause_reading()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(client.send(200 * samples.tobytes()[:1_000_000]), 10)
        elif deed == "garbage":
            await client.send(draw.choice(["{", '{"type": "start"}', "\0" * 1000, "[" * 9999]))
            await client.recv()
        elif deed == "floods":
            for _ in range(50):
                await client.send(samples.tobytes()[:1_000_000])
        elif deed in ("dies", "returns"):
            started = json.loads(await client.recv())
            client.transport.abort()
            if deed == "returns":
                first = {"type": "resume", "id": started["id"], "token": started["token"]}
                async with connect(address) as other:
                    await other.send(json.dumps(first))
                    await other.recv()


async def troublemaker(
    address: str, recordings: list[np.ndarray], number: int, deeds: list[int]
) -> None:
    draw = random.Random(number)
    while True:
        # AttributeError: websockets aborts a connection that the server has closed.
        with suppress(ConnectionClosed, InvalidStatus, OSError, KeyError, AttributeError):
            await misbehave(address, draw.choice(recordings), draw)
        deeds[0] += 1
        await asyncio.sleep(draw.random())


async def soak(
    address: str, process: int, recordings: list[np.ndarray], texts: list[str],
    options: argparse.Namespace, redis: Redis | None,
) -> int:  # fmt: skip
    """Run the clients, print a line each minute, and return the number of bad calls."""
    talks: list[Talk] = []
    lost: list[str] = []
    deeds, first, bad = [0], 0, 0
    seconds = options.disturb_s
    tasks = [
        *(
            talker(address, recordings, i, talks, lost, seconds is not None)
            for i in range(options.talkers)
        ),
        *(troublemaker(address, recordings, i, deeds) for i in range(options.troublemakers)),
        *([] if seconds is None else [disturb(process, redis, seconds)]),
    ]
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(options.talkers))
    running = [asyncio.create_task(each) for each in tasks]
    print(head(TITLES))
    began = time.monotonic()
    for minute in range(1, options.minutes + 1):
        await asyncio.sleep(began + 60 * minute - time.monotonic())
        for task in running:
            if task.done():
                task.result()
        new, first = talks[first:], len(talks)
        wrong = sum(each.text != texts[each.recording] for each in new)
        bad += wrong
        partials = percentiles([p for each in new for p in each.partials])
        memory = round(resident(process))
        print(row([minute, len(new), len(lost), partials, wrong, deeds[0], memory]))
        sys.stdout.flush()
    for task in running:
        task.cancel()
    print("\n".join(lost))
    return bad + len(lost)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="small-en-alnum")
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--talkers", type=int, default=8)
    parser.add_argument("--troublemakers", type=int, default=8)
    parser.add_argument("--serve", default="", help="more options of asrkit serve, in one string")
    parser.add_argument("--disturb-s", type=float, help="seconds between disturbances")
    parser.add_argument("--redis", action="store_true", help="save calls in a Redis of our own")
    parser.add_argument("--log", type=Path, help="file for the server's log")
    parser.add_argument("manifest", type=Path)
    options = parser.parse_args()
    recordings = read(options.manifest)
    command = [
        "-m", "asrkit", "serve", "--port", "0", "--streams", "1000", "--model", options.model
    ]  # fmt: skip
    command += options.serve.split()
    with tempfile.TemporaryDirectory() as folder:
        redis = Redis(Path(folder)) if options.redis else None
        try:
            command += [] if redis is None else redis.options
            with serving(command, options.log) as (address, process, told):
                texts = [asyncio.run(alone(address, samples)) for samples in recordings]
                print(f"{told}\n")
                bad = asyncio.run(soak(address, process, recordings, texts, options, redis))
        finally:
            if redis is not None:
                redis.process.kill()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
