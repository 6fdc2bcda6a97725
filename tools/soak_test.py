"""Measure whether half an hour of misbehaving clients costs `asrkit serve` memory or delays others.

    python tools/soak_test.py --minutes 30 data/an4/dev.jsonl

Some clients talk as in tools/load_test.py, and their texts and delays count. Other clients join and
leave in the middle of a call, stop reading, stop sending, or cut the connection and resume or not.
They also send a wrong sample rate, garbage, or audio as fast as they can. The tool prints a line
each minute.
"""

import argparse
import asyncio
import json
import random
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from load_test import Talk, alone, percentiles, read, serving, talk, usage
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from asrkit.cli.table import head, row

TITLES = ("minute", "calls", "partial p50, p95, p99 ms", "texts that differ", "misdeeds", "MB")
PACKET = 1600


async def talker(
    address: str, recordings: list[np.ndarray], number: int, talks: list[Talk]
) -> None:
    """Stream one recording after another."""
    await asyncio.sleep(number * 0.3)
    while True:
        recording = (7 * number + len(talks)) % len(recordings)
        talks.append(await talk(address, recordings[recording], recording))


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
        with suppress(ConnectionClosed, InvalidStatus, OSError, KeyError):
            await misbehave(address, draw.choice(recordings), draw)
        deeds[0] += 1
        await asyncio.sleep(draw.random())


async def soak(
    address: str, process: int, recordings: list[np.ndarray], texts: list[str], minutes: int,
    clients: tuple[int, int],
) -> None:  # fmt: skip
    talks: list[Talk] = []
    deeds = [0]
    good = (talker(address, recordings, i, talks) for i in range(clients[0]))
    bad = (troublemaker(address, recordings, i, deeds) for i in range(clients[1]))
    tasks = [asyncio.create_task(each) for each in (*good, *bad)]
    print(head(TITLES))
    began, first = time.monotonic(), 0
    for minute in range(1, minutes + 1):
        await asyncio.sleep(began + 60 * minute - time.monotonic())
        for task in tasks:
            if task.done():
                task.result()
        new, first = talks[first:], len(talks)
        wrong = sum(each.text != texts[each.recording] for each in new)
        partials = percentiles([p for each in new for p in each.partials])
        cells = [minute, len(new), partials, wrong, deeds[0], round(usage(process)[1])]
        print(row(cells), flush=True)
    for task in tasks:
        task.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="small-en-alnum")
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--talkers", type=int, default=8)
    parser.add_argument("--troublemakers", type=int, default=8)
    parser.add_argument("--serve", default="", help="more options of asrkit serve, in one string")
    parser.add_argument("manifest", type=Path)
    options = parser.parse_args()
    recordings = read(options.manifest)
    command = ["-m", "asrkit.serve", "--port", "0", "--streams", "1000", "--model", options.model]
    with serving([*command, *options.serve.split()]) as (address, process, told):
        texts = [asyncio.run(alone(address, samples)) for samples in recordings]
        print(f"{told}\n")
        clients = options.talkers, options.troublemakers
        asyncio.run(soak(address, process, recordings, texts, options.minutes, clients))


if __name__ == "__main__":
    main()
