"""The time to the final text (TTFS) of a server, by the protocol of pipecat's benchmark.

    python tools/ttfs.py --manifest dev.jsonl --callers 1,50,150

Callers stream turns at the speed of speech, in packets of 20 ms. A turn ends 200 ms after the last
speech that silero-vad finds, the stop time of pipecat's voice detection. Recordings that end
earlier continue with zeros; those without words are left out. The client then asks for the final
text. The time counts from this signal to the last final message; from the end of speech it is 200
ms more. Callers begin and pause at random, and each turn is a connection of its own.

A text unlike that of `asrkit decode` for the same samples, or a lost call, ends the program with
status 1. `--tree before=FOLDER` adds the asrkit of another checkout; contenders take turns.
"""

import argparse
import asyncio
import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import soundfile
from websockets.asyncio.client import connect

TOOLS = Path(__file__).parent
sys.path += [str(TOOLS), str(TOOLS / "benchmarks")]
from benchmarks import Row, environment, parser, report  # noqa: E402
from callers import RATE, in_trees, read, serving, usage  # noqa: E402

from asrkit.runtime.engine import BLOCK, SpeechDetector  # noqa: E402

PACKET = RATE // 50  # samples
STOP_S = 0.2  # silence after which the voice detection ends a turn
PATIENCE_S = 30.0  # for a message after a turn

LISTEN = "/v1/listen?encoding=linear16&sample_rate=16000&interim_results=true&endpointing=false"
PROTOCOLS = {  # path, first message, which the server answers, and the client's signal
    "asrkit": ("/v1/stream", '{"type": "start", "pause_ms": 0}', '{"type": "commit"}'),
    "Deepgram": (LISTEN, "", '{"type": "Finalize"}'),
}


class Turn(NamedTuple):
    final: float  # seconds from the signal to the text
    late: float  # seconds that the client itself was behind
    text: str


class Round(NamedTuple):
    turns: list[Turn]  # while all callers talked
    wrong: int  # texts that are not those of the recordings
    cpu_ms: float  # for a second of audio; not a number if unknown


async def take_turn(server: str, protocol: str, samples: np.ndarray) -> Turn:
    """Stream a turn, int16 at 16 kHz, and wait for its text."""
    path, start, asking = PROTOCOLS[protocol]
    async with connect(server + path, compression=None, max_queue=None) as client:
        if start:
            await client.send(start)
            await client.recv()
        due = began = time.monotonic()
        for place in range(0, len(samples), PACKET):
            due = began + (place + PACKET) / RATE
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await client.send(samples[place : place + PACKET].tobytes())
        signal = time.monotonic()
        await client.send(asking)
        text = None
        while text is None:
            message = await asyncio.wait_for(client.recv(), PATIENCE_S)
            text = final_text(json.loads(message))
        return Turn(time.monotonic() - signal, signal - due, text)


def final_text(message: dict[str, Any]) -> str | None:
    """Return the text that answers the signal; None of another message."""
    if message.get("from_finalize"):
        return str(message["channel"]["alternatives"][0]["transcript"])
    return str(message["text"]) if message["type"] == "final" else None


async def take_turns(
    server: str, process: int, protocol: str, known: list[tuple[np.ndarray, str]],
    callers: int, options: argparse.Namespace,
) -> Round:  # fmt: skip
    """Have callers take turns, of recordings with `known` texts; `process` 0 is unknown."""
    begins = max(len(samples) / RATE for samples, _ in known)
    since, before = time.monotonic() + begins, usage(process)[0]
    turns, wrong, audio_s, is_over = list[Turn](), 0, 0.0, False

    async def caller(number: int) -> None:
        nonlocal wrong, audio_s, is_over
        draw = random.Random(number)
        await asyncio.sleep(begins * draw.random())
        while not is_over:
            samples, text = draw.choice(known)
            turn = await take_turn(server, protocol, samples)
            audio_s += len(samples) / RATE
            if turn.text != text:
                wrong += 1
                print(f"{turn.text!r} is not {text!r}", file=sys.stderr)
            if time.monotonic() >= since and not is_over:
                turns.append(turn)
            is_over = len(turns) >= options.turns and time.monotonic() >= since + options.seconds
            await asyncio.sleep(draw.random() / 2)

    await asyncio.gather(*map(caller, range(callers)))
    return Round(turns, wrong, 1000 * (usage(process)[0] - before) / audio_s or np.nan)


def heard(samples: np.ndarray, detector: SpeechDetector) -> np.ndarray:
    """Return a recording, int16 at 16 kHz, up to STOP_S after its last speech."""
    _, speech = detector.step(detector.start(), samples.astype(np.float32) / 32768)
    end = int(np.flatnonzero(speech)[-1] + 1) * detector.frame if any(speech) else len(samples)
    end += round(STOP_S * RATE)
    return np.pad(samples[:end], (0, max(0, end - len(samples))))


def decoded(recordings: list[np.ndarray], options: list[str]) -> list[str]:
    """Return the texts that `asrkit decode` writes for recordings."""
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/{number}.wav" for number in range(len(recordings))]
        for file, samples in zip(files, recordings, strict=True):
            soundfile.write(file, samples, RATE)
        command = [sys.executable, "-m", "asrkit", "decode", "--format", "jsonl", *options, *files]
        lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line)["text"] for line in lines.splitlines()]


def row(name: str, protocol: str, callers: str, rounds: list[Round]) -> Row:
    """Return percentiles over the turns of all rounds."""
    turns = [turn for each in rounds for turn in each.turns]
    times = np.percentile([1000 * turn.final for turn in turns], [50, 95, 99])
    return {
        "contender": name,
        "protocol": protocol,
        "callers": callers,
        "turns": len(turns),
        "from the signal: median, p95, p99, ms": ", ".join(f"{each:.0f}" for each in times),
        "from the end of speech": ", ".join(f"{1000 * STOP_S + each:.0f}" for each in times),
        "texts that differ": sum(each.wrong for each in rounds),
        "CPU ms a second of audio": float(np.median([each.cpu_ms for each in rounds])),
        "client late, p95": float(np.percentile([1000 * turn.late for turn in turns], 95)),
    }


def options_of() -> argparse.Namespace:
    arguments = parser("The time to the final text.", "python tools/ttfs.py --manifest dev.jsonl")
    arguments.add_argument("--manifest", type=Path, required=True)
    arguments.add_argument("--callers", default="1,50,150", metavar="N,…")
    arguments.add_argument("--protocols", default=",".join(PROTOCOLS), metavar="NAME,…")
    arguments.add_argument("--seconds", type=float, default=15.0, help="least seconds of a round")
    arguments.add_argument("--turns", type=int, default=50, help="least turns of a round")
    both = "--model small-en-alnum --second-pass full"
    arguments.add_argument("--options", default=both, help=f"options of both (default {both})")
    arguments.add_argument("--server", metavar="URL", help="ws://…, which runs with --options")
    arguments.add_argument("--tree", action="append", default=[], metavar="NAME=FOLDER")
    arguments.set_defaults(threads=[1], rounds=1)
    return arguments.parse_args()


def main() -> None:
    options = options_of()
    facts, more = environment(options), options.options.split()
    facts["versions"] += "".join(f", {it} {version(it)}" for it in ("onnxruntime", "websockets"))
    detector = SpeechDetector(1000 * BLOCK // RATE)
    found = read(options.manifest)[: 2 if options.quick else None]
    turns = [heard(each, detector) for each in found]
    known = [each for each in zip(turns, decoded(turns, more), strict=True) if each[1]]
    command = ["-m", "asrkit", "serve", "--port", "0", "--streams", "10000", *more]
    trees = {} if options.server else in_trees(command, options.tree)
    rows: list[Row] = []
    with ExitStack() as stack:
        servers = {"asrkit": (options.server, 0)} if options.server else {}
        for name, start in trees.items():
            address, process, _ = stack.enter_context(serving(*start))
            servers[name] = address.removesuffix("/v1/stream"), process
        kinds = itertools.product(options.callers.split(","), options.protocols.split(","))
        for callers, protocol in kinds:
            rounds: dict[str, list[Round]] = {name: [] for name in servers}
            for name in [*servers] * options.rounds:
                taking = take_turns(*servers[name], protocol, known, int(callers), options)
                rounds[name].append(asyncio.run(taking))
            rows += [row(name, protocol, callers, rounds[name]) for name in servers]
    report("Time to the final text", facts, rows, options.json)
    sys.exit(any(each["texts that differ"] for each in rows))


if __name__ == "__main__":
    main()
