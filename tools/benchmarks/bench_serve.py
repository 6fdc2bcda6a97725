"""The processor time that a server takes for a second of audio, and how late its texts come.

    asrkit export --model small-en-alnum --format onnx-int8 --chunk-ms 640 --right-ms 0 \\
        --manifest dev.jsonl --output small.onnx         # and sherpa-onnx-int8 for --sherpa
    python tools/benchmarks/bench_serve.py --manifest dev.jsonl --sherpa FOLDER --streams 50,100 \\
        --serve "--chunk-ms 640 --right-ms 0 --second-pass off --backend small.onnx"

Callers talk at the speed of speech, with --misbehaving beside others that misbehave. A lost call,
or a text that is not that of the recording alone, ends the program with status 1. Contenders take
turns, in the opposite order every second round. `--tree before=FOLDER` adds the asrkit of another
checkout, `--sherpa-binary "NAME=BINARY OPTIONS"` sherpa-onnx's own server of chunks of 640 ms, see
sherpa_binary.py. Processor time is comparable while other programs use the cores; delays are not.

`--server-cores 0` leaves the other cores to the callers. A contender gets no more of them once the
99th percentile of the delay, or of the time to begin a call, passes 640 ms. "callers late" is the
time by which they sent their packets too late.
"""

import argparse
import asyncio
import os
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmarks import Row, environment, parser, report

from asrkit.audio import SAMPLE_RATE

TOOLS = Path(__file__).parents[1]
sys.path.insert(0, str(TOOLS))
from callers import Talk, alone, callers, family, in_trees, read, serving, usage  # noqa: E402
from protocols import STREAM, WENET, ZIPFORMER, Line  # noqa: E402

TOO_LATE_MS = 640  # 99th percentile above which a contender gets no more callers


class Contender(NamedTuple):
    name: str
    line: Line
    process: int
    texts: list[str]  # of each recording alone
    idle_mb: float


class Round(NamedTuple):
    """The talks of one contender in one round, and what they cost."""

    talks: list[Talk]
    cpu_ms: float  # for a second of audio
    loop_ms: float  # those of the main threads, which run the event loops
    stream_mb: float

    def late(self, percent: int) -> float:
        """Return a percentile of the delays of live text in ms."""
        delays = [1000 * each for talk in self.talks for each in talk.partials]
        return float(np.percentile(delays, percent)) if delays else float("nan")


def spent(process: int) -> tuple[float, float, float]:
    """Return processor seconds of a server's processes and of their main threads, and their MB."""
    seconds, memory = usage(process)
    loops = (Path(f"/proc/{each}/task/{each}/schedstat").read_text() for each in family(process))
    return seconds, sum(int(each.split()[0]) for each in loops) / 1e9, memory


def measured(
    contender: Contender, recordings: list[np.ndarray], streams: int, options: argparse.Namespace
) -> Round:
    """Have callers talk to a server."""
    before = spent(contender.process)
    lost: list[str] = []
    calling = callers(
        contender.line, recordings, streams, options.seconds, lost, options.misbehaving
    )
    talks = asyncio.run(calling)
    after = spent(contender.process)
    if lost:
        sys.exit(f"{contender.name}: a call is lost: {lost[0]}")
    for talk in talks:
        if talk.text != contender.texts[talk.recording]:
            sys.exit(f"{contender.name}: {talk.text!r} is not {contender.texts[talk.recording]!r}")
    audio = sum(len(recordings[talk.recording]) for talk in talks) / SAMPLE_RATE
    cpu, loop = (1000 * (b - a) / audio for a, b in zip(before[:2], after[:2], strict=True))
    return Round(talks, cpu, loop, (after[2] - contender.idle_mb) / streams)


def row(name: str, streams: int, rounds: list[Round]) -> Row:
    """Return medians over the rounds."""
    middle = statistics.median
    cpu = [each.cpu_ms for each in rounds]
    last = [1000 * talk.final for each in rounds for talk in each.talks]
    begin = [1000 * talk.begin for each in rounds for talk in each.talks]
    slow = [1000 * talk.late for each in rounds for talk in each.talks]
    return {
        "contender": name,
        "streams": streams,
        "CPU ms a second of audio": middle(cpu),
        "lowest to highest": f"{min(cpu):.2f} to {max(cpu):.2f}",
        "of the event loop": middle([each.loop_ms for each in rounds]),
        "delay p50, ms": middle([each.late(50) for each in rounds]),
        "p99, ms": middle([each.late(99) for each in rounds]),
        "end to last text p50, ms": middle(last),
        "p99 of that, ms": float(np.percentile(last, 99)),
        "begin p99, ms": float(np.percentile(begin, 99)),
        "callers late p99, ms": float(np.percentile(slow, 99)),
        "MB a stream": middle([each.stream_mb for each in rounds]),
    }


def is_late(found: Row) -> bool:
    """Return whether callers wait too long for live text, or before they can talk."""
    return any(float(str(found[name])) > TOO_LATE_MS for name in ("p99, ms", "begin p99, ms"))


def main() -> None:
    arguments = parser(
        "A server's processor time for a second of audio.",
        "python tools/benchmarks/bench_serve.py --manifest dev.jsonl --streams 50,100",
    )
    arguments.add_argument("--manifest", type=Path, required=True)
    arguments.add_argument("--streams", default="50,100,200,300", metavar="N,…")
    arguments.add_argument("--seconds", type=float, default=15.0, help="seconds of a round")
    arguments.add_argument("--join", type=int, default=1, help="recordings of a call (default 1)")
    arguments.add_argument("--misbehaving", type=int, default=0, help="clients that misbehave")
    arguments.add_argument("--serve", default="", help="options of asrkit serve, in one string")
    tree = "another checkout of asrkit; needs Python 3.11"
    arguments.add_argument("--tree", action="append", default=[], metavar="NAME=FOLDER", help=tree)
    arguments.add_argument("--sherpa", metavar="FOLDER", help="an export for sherpa-onnx")
    arguments.add_argument("--sherpa-binary", action="append", default=[], metavar="NAME=COMMAND")
    arguments.add_argument("--packet-ms", type=int, default=100)
    arguments.add_argument("--server-cores", metavar="N,…", help="cores of the servers alone")
    arguments.set_defaults(threads=[1])
    options = arguments.parse_args()
    facts, threads = environment(options), str(options.threads[0])
    every = read(options.manifest)[: 2 if options.quick else None]
    if not 1 <= options.join <= len(every):
        sys.exit(f"--join must be 1 to the {len(every)} recordings read, got {options.join}")
    recordings = [np.concatenate((every * 2)[i : i + options.join]) for i in range(len(every))]
    command = ["-m", "asrkit", "serve", "--port", "0", "--streams", "10000", "--threads", threads]
    command += options.serve.split()
    servers = in_trees(command, options.tree)
    if options.sherpa:
        servers["sherpa-onnx"] = ([str(TOOLS / "sherpa_server.py"), options.sherpa], {})
    protocols = dict.fromkeys(servers, STREAM)
    for name, binary in (each.split("=", 1) for each in options.sherpa_binary):
        servers[name] = ([str(TOOLS / "sherpa_binary.py"), *binary.split()], {})
        protocols[name] = ZIPFORMER if "--zipformer2-ctc-model" in binary else WENET
    cores = os.sched_getaffinity(0)
    own = {int(core) for core in (options.server_cores or "").split(",") if core}
    rows: list[Row] = []
    with ExitStack() as stack:
        contenders = []
        os.sched_setaffinity(0, own or cores)  # servers inherit it
        for name, start in servers.items():
            address, process, _ = stack.enter_context(serving(*start))
            line = Line(address, protocols[name], options.packet_ms * SAMPLE_RATE // 1000)
            texts = [asyncio.run(alone(line, samples)) for samples in recordings]
            contenders.append(Contender(name, line, process, texts, spent(process)[2]))
        os.sched_setaffinity(0, cores - own or cores)
        for streams in map(int, options.streams.split(",")):
            rounds: dict[str, list[Round]] = {each.name: [] for each in contenders}
            for number in range(options.rounds):
                for each in contenders[:: -1 if number % 2 else 1]:
                    found = measured(each, recordings, streams, options)
                    rounds[each.name].append(found)
                    told = f"{each.name}, {streams} callers: p99 {found.late(99):.0f} ms"
                    print(f"{told}, {found.cpu_ms:.2f} ms a second of audio", file=sys.stderr)
            rows += [row(each.name, streams, rounds[each.name]) for each in contenders]
            late = {each["contender"] for each in rows if is_late(each)}
            contenders = [each for each in contenders if each.name not in late]
    report("Servers", facts, rows, options.json)


if __name__ == "__main__":
    main()
