"""Measure how long the clients of `asrkit serve` wait, many at a time, over real sockets.

    python tools/load_test.py --model small-en-alnum --streams 10,50,100 data/an4/dev.jsonl

Clients talk at the speed of speech, each a recording after another, in packets of 100 ms. They
begin one by one over the length of a call, as many in a second as later. Delays are from the packet
that completes a chunk to the message with its text, once all clients talk, and from the end of the
audio to the last message. Turns are from the end of the last word, by forced alignment, to the
message that ends its segment: for recordings with silence after them, such as those of
`1a3d6e1:tools/paused.py`. Clients run in a process of their own, whose CPU time is said apart.
Every text is compared with what the same recogniser makes of the recording alone.
"""

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from asrkit import audio
from asrkit.build import build_normalizer
from asrkit.cli import table
from asrkit.data.labelled import jobs_of
from asrkit.errors import UserError
from asrkit.evaluation.outcomes import ReferenceRecording, aligned
from asrkit.evaluation.turns import Turn, summarized, turn_from
from asrkit.model import FULL
from asrkit.model_file import load_model
from asrkit.runtime import recognizer_of

PACKET_S = 0.1
RATE = 16_000
RECORDINGS = 40  # of the manifest
LOST = (OSError, KeyError, RuntimeError, WebSocketException, asyncio.TimeoutError)
REACH = 240  # samples after a chunk's last frame begins that the frame needs


TITLES = (
    "streams", "calls", "partial p50, p95, p99 ms", "last p50, p95, p99 ms",
    "end of speech to final p50, p95 ms", "cut early", "server's cores", "clients' cores", "MB",
    "clients late ms", "texts that differ", "calls lost",
)  # fmt: skip


class Talk(NamedTuple):
    """The outcome of one recording of one client."""

    partials: list[float]  # seconds from the packet that completes a chunk to its message
    final: float  # seconds from the end of the audio to the last message
    late: float  # seconds that the client itself was behind, at most
    text: str
    recording: int
    turn: Turn | None = None  # None where the end of speech is not known


async def talk(
    address: str,
    samples: np.ndarray,
    recording: int,
    heard: Callable[[float, float], None] = lambda sent, late: None,
    end_of_speech: float | None = None,
    since: float = 0.0,
) -> Talk:
    """Stream a recording as a call.

    Args:
        heard: called for each live text with the time of its audio and its delay.
        end_of_speech: end of its last word in seconds, if known.
        since: time.monotonic() from which on live texts count.
    """
    sent: list[float] = []  # when each packet was
    partials, finals, late, ends = [], [], 0.0, list[tuple[float, float]]()
    size = round(PACKET_S * RATE)
    async with connect(address, max_size=None, compression=None) as client:
        await client.send('{"type": "start"}')
        await client.recv()
        began = time.monotonic()

        async def send() -> None:
            nonlocal late
            for number, start in enumerate(range(0, len(samples), size)):
                due = began + (number + 1) * PACKET_S
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                late = max(late, time.monotonic() - due)
                await client.send(samples[start : start + size].tobytes())
                sent.append(time.monotonic())
            await client.send('{"type": "end"}')

        async with doing(send()) as sending:
            seen = 0
            async for message in client:
                now, got = time.monotonic(), json.loads(message)
                if got["type"] == "final":
                    finals.append(got["text"])
                    if len(sent) * size < len(samples):
                        ends.append((got["end"], now - began))
                packet = (got.get("recognized", 0) + REACH) // size
                if got["type"] == "partial" and got["recognized"] > seen and packet < len(sent):
                    at = sent[packet]
                    partials += [now - at] if at >= since else []
                    heard(at, now - at)
                    seen = got["recognized"]
                if got["type"] == "error":
                    raise RuntimeError(got["message"])
            await sending
    turn = None if end_of_speech is None else turn_from(ends, end_of_speech, now - began)
    return Talk(partials, now - sent[-1], late, " ".join(finals), recording, turn)


@asynccontextmanager
async def doing(work: Coroutine[Any, Any, None]) -> AsyncIterator["asyncio.Task[None]"]:
    """A task that ends with the block."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def caller(
    address: str, recordings: list[np.ndarray], number: int, begin: float, since: float,
    seconds: float, ends: list[float | None], lost: list[str],
) -> list[Talk]:  # fmt: skip
    """Stream one recording after another, from `begin` until `seconds` after `since`."""
    await asyncio.sleep(begin - time.monotonic())
    talks = []
    while time.monotonic() < since + seconds:
        recording = (7 * number + len(talks)) % len(recordings)
        end = ends[recording]
        try:
            samples = recordings[recording]
            talks.append(await talk(address, samples, recording, end_of_speech=end, since=since))
        except LOST as error:  # among them a missed ping
            lost.append(f"{time.strftime('%X')} {error!r}")
            await asyncio.sleep(1.0)
    return talks


async def callers(
    address: str, recordings: list[np.ndarray], count: int, seconds: float,
    ends: list[float | None], lost: list[str],
) -> list[Talk]:  # fmt: skip
    """Have clients talk, `count` for some seconds; append a line to `lost` for each lost call."""
    began = time.monotonic()
    call_s = float(np.mean([len(samples) / RATE for samples in recordings]))
    each = (
        caller(
            address, recordings, i, began + call_s * i / count, began + call_s, seconds, ends, lost
        )
        for i in range(count)
    )
    return [found for talks in await asyncio.gather(*each) for found in talks]


def usage(process: int) -> tuple[float, float]:
    """CPU seconds and resident MB of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    resident = int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), resident


def family(process: int) -> list[int]:
    """Return a process and those that it has started."""
    found = [process]
    with suppress(OSError):  # the process has ended
        for started in Path(f"/proc/{process}/task").glob("*/children"):
            found += [each for child in started.read_text().split() for each in family(int(child))]
    return found


def resident(process: int) -> float:
    """Return the MB of a process and of those that it has started."""
    found = 0.0
    for each in family(process):
        with suppress(OSError):
            found += usage(each)[1]
    return found


def percentiles(values: list[float]) -> str:
    """Median, 95 % and 99 %, in ms."""
    if len(values) < 2:
        return "-"
    cuts = statistics.quantiles(values, n=100)
    return ", ".join(f"{1000 * cuts[each - 1]:.0f}" for each in (50, 95, 99))


def row(address: str, server: int, recordings: list[np.ndarray], texts: list[str], streams: int,
        seconds: float, ends: list[float | None]) -> str:  # fmt: skip
    cpu, _ = usage(server)
    own, started = time.process_time(), time.monotonic()
    lost: list[str] = []
    talks = asyncio.run(callers(address, recordings, streams, seconds, ends, lost))
    elapsed = time.monotonic() - started
    after, memory = usage(server)
    wrong = sum(talk.text != texts[talk.recording] for talk in talks)
    cells = [
        str(streams), str(len(talks)), percentiles([p for talk in talks for p in talk.partials]),
        percentiles([talk.final for talk in talks]), *turn_cells(talks),
        f"{(after - cpu) / elapsed:.2f}", f"{(time.process_time() - own) / elapsed:.2f}",
        f"{memory:.0f}", f"{1000 * max((talk.late for talk in talks), default=0.0):.0f}",
        str(wrong), str(len(lost)),
    ]  # fmt: skip
    for line in lost:
        print(f"a call is lost: {line}", file=sys.stderr)
    return table.row(cells)


def turn_cells(talks: list[Talk]) -> list[str]:
    """Return the cells about the ends of turns."""
    found = summarized([talk.turn for talk in talks if talk.turn is not None])
    if found is None:
        return ["-", "-"]
    return [f"{found.median_ms:.0f}, {found.p95_ms:.0f}", f"{100 * found.early:.1f} %"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="small-en-alnum")
    parser.add_argument("--streams", default="10,50,100")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds of each row")
    parser.add_argument("--serve", default="", help="more options of asrkit serve, in one string")
    parser.add_argument("--peer", help="folder of an export for sherpa-onnx, which is measured")
    parser.add_argument("manifest", type=Path)
    options = parser.parse_args()
    recordings = read(options.manifest)
    ends = ends_of_speech(options.manifest, None if options.peer else options.model)
    command = [
        "-m", "asrkit", "serve", "--port", "0", "--streams", "1000", "--model", options.model
    ]  # fmt: skip
    if options.peer:
        command = [str(Path(__file__).with_name("sherpa_server.py")), options.peer]
    with serving([*command, *options.serve.split()]) as (address, process, told):
        # One caller at a time: what is compared with; tests compare that with `transcribe`.
        texts = [asyncio.run(alone(address, samples)) for samples in recordings]
        print(f"{told}\n")
        print(table.head(TITLES))
        for streams in map(int, options.streams.split(",")):
            line = row(address, process, recordings, texts, streams, options.seconds, ends)
            print(line, flush=True)


def read(manifest: Path) -> list[np.ndarray]:
    """Return the first recordings of a manifest, int16 at 16 kHz; exit if one cannot be read."""
    try:
        jobs = jobs_of([], str(manifest), [])[:RECORDINGS]
        samples = [audio.load(job.path, job.start, job.duration) for job in jobs]
    except UserError as error:
        sys.exit(str(error))
    return [np.clip(np.rint(each * 32768), -32768, 32767).astype(np.int16) for each in samples]


def ends_of_speech(manifest: Path, model: str | None) -> list[float | None]:
    """Return the end of the last word of the first recordings of a manifest, in seconds.

    Args:
        manifest: recordings with their texts.
        model: model that aligns the texts; None aligns nothing.
    """
    jobs = jobs_of([], str(manifest), [])[:RECORDINGS]
    if model is None:
        return [None] * len(jobs)
    file = load_model(model)
    aligner, normalize = recognizer_of(file, FULL), build_normalizer(file.config.text)
    recordings = (ReferenceRecording(j.id, j.load(), normalize(j.text or "")) for j in jobs)
    found = (aligned(aligner, each) for each in recordings)
    return [each.words[-1].end if each is not None and each.words else None for each in found]


@contextmanager
def serving(
    command: list[str], log: Path | None = None, environment: dict[str, str] | None = None
) -> Iterator[tuple[str, int, str]]:
    """A context manager of a server process: its address, its process id, and its first output.

    Args:
        command: arguments of Python.
        log: file for what it writes to standard error; None for a temporary one.
        environment: variables beside those of this process.
    """
    with ExitStack() as stack:
        # "a": what is read here does not move the place where the server writes.
        named = tempfile.TemporaryFile("a+") if log is None else open(log, "a+")  # noqa: SIM115
        file = stack.enter_context(named)
        process = subprocess.Popen(
            [sys.executable, *command], stderr=file, env=os.environ | (environment or {})
        )
        stack.enter_context(ending(process))
        told = ""
        while (found := re.search(r"http://(\S+)/\n", told)) is None:
            over = process.poll() is not None
            file.seek(0)
            told = file.read()
            if over:
                sys.exit(told)
            time.sleep(0.05)
        yield f"ws://{found[1]}/v1/stream", process.pid, told.strip()


@contextmanager
def ending(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End a process with the block."""
    try:
        yield
    finally:
        process.terminate()
        process.wait()


async def alone(address: str, samples: np.ndarray) -> str:
    """The text of a recording that is sent as fast as it is taken."""
    async with connect(address, max_size=None, compression=None) as client:
        await client.send('{"type": "start"}')
        await client.send(samples.tobytes())
        await client.send('{"type": "end"}')
        messages = [json.loads(message) async for message in client]
    return " ".join(each["text"] for each in messages if each["type"] == "final")


if __name__ == "__main__":
    main()
