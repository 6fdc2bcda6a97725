"""Measure whether attacking clients of `asrkit serve` harm its other clients.

    python tools/attack_server.py data/an4/dev.jsonl
    python tools/attack_server.py --quick --only clears --only logs data/an4/dev.jsonl
    python tools/attack_server.py --serve "--workers 2" data/an4/dev.jsonl

Neighbours are ordinary clients. They talk live, upload a short file, and suspend and resume a call:
first alone, then beside each attack of tools/attacks.py, then alone again. A table shows the
results of the neighbours, and the server's memory and disk. Linux only. The exit status is 1 if a
goal is missed:

- live text: the 99th percentile of its delay is at most 1.5 times that alone, or NOISE_S more (not
  with --quick);
- calls: each call has its text unless the server was full, and each suspended call is resumed;
- uploads: each short upload has its text within UPLOAD_S or 1.5 times the slowest alone;
- health: /healthz answers within HEALTH_S;
- memory: 75 s after the attack within 10 % of that before (not with --quick);
- disk and log: at most DISK_MB and LOG_KB at any time.

The attacks run on the same machine, which needs spare cores for them; see --apart.
"""

import argparse
import asyncio
import io
import json
import math
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
import soundfile
from attacks import CASES
from load_test import LOST, alone, family, read, resident, serving, talk
from websockets.asyncio.client import connect

from asrkit.cli.table import head, row
from asrkit.model_file import model_path

NOISE_S = 0.25  # variation of p99 between runs: a neighbour's second pass may delay live text
UPLOAD_S, HEALTH_S = 10.0, 2.0
DISK_MB, LOG_KB = 256, 2000
CORES = sorted(os.sched_getaffinity(0))
STREAMS, DESCRIPTORS = 20, 256  # of the server
TITLES = (
    "case", "sent", "live text late by p50, p99 ms", "× alone", "calls failed",
    "slowest upload s", "resumed", "healthy", "MB before, peak, after", "disk MB peak, after",
    "log kB", "missed",
)  # fmt: skip


class Seen(NamedTuple):
    """An observation of a neighbour: time, kind and value."""

    at: float
    kind: str
    value: float = 0.0


class Neighbours:
    """Ordinary clients of a server, and their observations."""

    def __init__(self, address: str, recordings: list[np.ndarray], texts: list[str]) -> None:
        self.address, self.recordings, self.texts = address, recordings, texts
        self.http = address.replace("ws://", "http://").removesuffix("/v1/stream")
        self.seen: list[Seen] = []
        self.upload_sent: float | None = None  # time of the unanswered upload
        self.reasons: Counter[str] = Counter()  # why calls failed

    def note(self, kind: str, value: float = 0.0, at: float | None = None) -> None:
        self.seen.append(Seen(time.monotonic() if at is None else at, kind, value))

    def fail(self, kind: str, reason: object) -> None:
        """Note a call that failed, and why; one that may try again later has not failed."""
        kind = "full" if "try again later" in str(reason) else kind
        self.note(kind)
        self.reasons[f"{kind}: {reason or type(reason).__name__}"] += 1

    async def run(self, talkers: int, pause_s: float) -> None:
        """Use the server until cancelled."""
        talking = (self.talker(number) for number in range(talkers))
        await asyncio.gather(
            *talking, self.uploader(2 * pause_s), self.resumer(pause_s), self.prober()
        )

    async def talker(self, number: int) -> None:
        """Stream one recording after another."""
        await asyncio.sleep(number * 0.3)
        count = 0
        while True:
            which = (7 * number + count) % len(self.recordings)
            count += 1
            try:
                note = lambda sent, late: self.note("late", late, sent)  # noqa: E731
                done = await talk(self.address, self.recordings[which], which, note)
                if done.text == self.texts[which]:
                    self.note("call")
                else:
                    self.fail("wrong", f"{done.text!r}, not {self.texts[which]!r}")
            except LOST as error:
                self.fail("failed", error)
                await asyncio.sleep(0.5)

    async def uploader(self, pause_s: float) -> None:
        """Upload a short file again and again, with pauses."""
        file = io.BytesIO()
        soundfile.write(file, self.recordings[0], 16_000, format="FLAC")
        async with httpx.AsyncClient(timeout=60) as client:
            while True:
                sent = self.upload_sent = time.monotonic()
                data = {"file": ("a.flac", file.getvalue())}
                url = f"{self.http}/v1/audio/transcriptions"
                try:
                    answer = await client.post(url, files=data)
                    good = answer.status_code == 200 and answer.json()["text"] == self.texts[0]
                    kind = "upload" if good else "unserved"
                except httpx.HTTPError:
                    kind = "unserved"
                self.note(kind, time.monotonic() - sent, sent)
                self.upload_sent = None
                await asyncio.sleep(pause_s)

    async def resumer(self, pause_s: float) -> None:
        """Start a call, lose its connection and resume it after a pause, again and again."""
        samples = np.resize(self.recordings[0], 32_000).tobytes()
        while True:
            try:
                async with connect(self.address, compression=None) as client:
                    await client.send('{"type": "start"}')
                    started = json.loads(await asyncio.wait_for(client.recv(), 10))
                    await client.send(samples)
                    await asyncio.wait_for(client.recv(), 10)
                    client.transport.abort()
            except LOST as error:
                self.fail("failed", error)
                await asyncio.sleep(0.5)
                continue
            lost = time.monotonic()
            await asyncio.sleep(2 * pause_s)
            self.note("resumed" if await self.resumes(started) else "lost", 0.0, lost)

    async def resumes(self, started: dict[str, str]) -> bool:
        """Resume and finish a call, and return whether it succeeded; retry a full server."""
        first = {"type": "resume", "id": started["id"], "token": started["token"]}
        for _ in range(20):
            with suppress(*LOST):
                async with connect(self.address, compression=None) as client:
                    await client.send(json.dumps(first))
                    answer = json.loads(await asyncio.wait_for(client.recv(), 10))
                    if answer["type"] == "started":
                        await client.send('{"type": "end"}')
                        async for _ in client:
                            pass
                        return True
                    if answer["reason"] != "streams":
                        return False
            await asyncio.sleep(0.5)
        return False

    async def prober(self) -> None:
        """Request /healthz and /readyz, each on a new connection."""
        while True:
            for path in ("/healthz", "/readyz"):
                sent = time.monotonic()
                good = False
                with suppress(httpx.HTTPError):
                    async with httpx.AsyncClient(timeout=HEALTH_S) as client:
                        good = (await client.get(self.http + path)).status_code == 200
                self.note(f"{path} {'ok' if good else 'no'}", time.monotonic() - sent, sent)
            await asyncio.sleep(0.5)

    def uploads(self, start: float, end: float) -> list[float]:
        """Return the seconds of each upload open between two times, infinite if it failed."""
        found = [
            each.value if each.kind == "upload" else math.inf
            for each in self.seen
            if each.kind in ("upload", "unserved") and each.at < end
            and each.at + each.value > start
        ]  # fmt: skip
        if self.upload_sent is not None and self.upload_sent < end:
            found.append(time.monotonic() - self.upload_sent)  # so far
        return found

    def between(self, start: float, end: float, kind: str) -> list[float]:
        """Return the values of all observations of a kind between two times."""
        return [each.value for each in self.seen if each.kind == kind and start <= each.at < end]


class Usage(NamedTuple):
    memory: float  # MB
    disk: float  # MB
    log: float  # kB


class Watched:
    """The memory, disk and log of a server and its decoding processes.

    Args:
        log: file with the server's standard error.
    """

    def __init__(self, process: int, folders: list[Path], log: Path) -> None:
        self.process, self.folders, self.log = process, folders, log

    def now(self) -> Usage:
        disk = 0.0
        for each in family(self.process):
            with suppress(OSError):  # the process has ended
                disk += nameless(each)
        for folder in self.folders:
            for path in folder.rglob("*"):
                with suppress(OSError):
                    disk += path.stat().st_blocks * 512 / 1e6
        return Usage(resident(self.process), disk, self.log.stat().st_size / 1e3)

    async def peak(self, seconds: float) -> Usage:
        """Return the largest value of each within `seconds`."""
        found, until = self.now(), time.monotonic() + seconds
        while time.monotonic() < until:
            await asyncio.sleep(0.2)
            found = Usage(*map(max, found, self.now()))
        return found


def nameless(process: int) -> float:
    """Return the MB of a process's open files without a name."""
    found = {}
    for each in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):
            link = os.readlink(each)
            if link.startswith("/") and link.endswith(" (deleted)") and "memfd" not in link:
                about = each.stat()
                found[about.st_ino] = about.st_blocks * 512 / 1e6
    return sum(found.values())


class Times(NamedTuple):
    """The duration of each phase, seconds."""

    quiet: float  # before the attacks
    attack: float
    calm: float  # after an attack
    pause: float  # between two actions of a neighbour


# The server keeps a suspended call for a minute, and removes it some seconds later.
USUAL, QUICK = Times(40.0, 15.0, 75.0, 3.0), Times(6.0, 5.0, 6.0, 0.7)


class Trial:
    """The attacks on a server, one after another."""

    def __init__(self, neighbours: Neighbours, watched: Watched, times: Times) -> None:
        self.neighbours, self.watched, self.times = neighbours, watched, times
        self.quiet: list[tuple[float, float]] = []  # times without an attack
        self.missed: list[str] = []

    def alone(self, kind: str) -> list[float]:
        """Return the values of a kind in all phases without an attack."""
        return [v for start, end in self.quiet for v in self.neighbours.between(start, end, kind)]

    async def run(self, cases: list[str], address: str, folder: Path) -> None:
        working = asyncio.ensure_future(self.neighbours.run(4, self.times.pause))
        await asyncio.sleep(3)  # until all are there
        await self.wait(self.times.quiet)
        self.show("alone", "", *self.quiet[0], [self.watched.now()] * 3, is_alone=True)
        for case in cases:
            await self.case(case, address, folder)
            if working.done():
                working.result()
        working.cancel()

    async def wait(self, seconds: float) -> None:
        """Wait without an attack, and note these times."""
        start = time.monotonic()
        await asyncio.sleep(seconds)
        self.quiet.append((start, time.monotonic()))

    async def case(self, case: str, address: str, folder: Path) -> None:
        script = Path(__file__).with_name("attacks.py")
        attack = await asyncio.create_subprocess_exec(
            sys.executable, script, case, address, folder, stdout=subprocess.PIPE
        )
        assert attack.stdout is not None
        await attack.stdout.readline()  # ready
        before, start = self.watched.now(), time.monotonic()
        peak = await self.watched.peak(self.times.attack)
        end = time.monotonic()
        attack.send_signal(signal.SIGTERM)
        try:
            told = (await asyncio.wait_for(attack.stdout.read(), 10)).decode().split()
        except asyncio.TimeoutError:
            with suppress(ProcessLookupError):  # it has just ended
                attack.kill()
            told = ["?", "0"]
        await attack.wait()
        await asyncio.sleep(self.times.calm / 2)
        await self.wait(self.times.calm / 2)
        after = self.watched.now()
        sent = f"{told[0]} connections, {int(told[1]) / 1e6:.1f} MB"
        self.show(case, sent, start, end, [before, peak, after])

    def show(
        self, case: str, sent: str, start: float, end: float, used: list[Usage],
        is_alone: bool = False,
    ) -> None:  # fmt: skip
        """Print a row of the table, and note the goals that were missed."""

        def count(*kinds: str) -> int:
            return sum(len(self.neighbours.between(start, end, kind)) for kind in kinds)

        late, quiet = self.neighbours.between(start, end, "late"), self.alone("late")
        uploads = self.neighbours.uploads(start, end)  # may be empty in a short phase
        slowest, usual = max(uploads, default=0.0), max(self.alone("upload"), default=0.0)
        failed = count("failed", "wrong")
        asked = count("/healthz ok", "/healthz no")
        before, peak, after = used
        grown, is_quick = peak.log - before.log, self.times is QUICK
        goals = {
            "late": is_quick or percentile(late, 99) <= max(
                1.5 * percentile(quiet, 99), percentile(quiet, 99) + NOISE_S
            ),
            "texts": is_alone or len(late) >= 0.6 * len(quiet) * (end - start) / self.quiet_s,
            "calls": not failed,
            "uploads": slowest <= max(UPLOAD_S, 1.5 * usual),
            "resumed": not count("lost"),
            "health": not count("/healthz no"),
            "memory": is_quick or after.memory <= 1.1 * before.memory,
            "disk": peak.disk <= DISK_MB,
            "log": grown <= LOG_KB,
        }  # fmt: skip
        stopped = CASES[case].stops if not is_alone else ()
        missed = [name for name, reached in goals.items() if not reached and name not in stopped]
        self.missed += [f"{case}: {name}" for name in missed]
        ratio = percentile(late, 99) / percentile(quiet, 99)
        cells = [
            case, sent, f"{1000 * percentile(late, 50):.0f}, {1000 * percentile(late, 99):.0f}",
            f"{ratio:.1f}", f"{failed} of {count('call') + failed}",
            f"{slowest:.1f}" if uploads else "–",
            f"{count('resumed')} of {count('resumed', 'lost')}",
            f"{count('/healthz ok')} of {asked}, ready {count('/readyz ok')}",
            f"{before.memory:.0f}, {peak.memory:.0f}, {after.memory:.0f}",
            f"{peak.disk:.1f}, {after.disk:.1f}", f"{grown:.0f}", ", ".join(missed) or "–",
        ]  # fmt: skip
        print(row(cells), flush=True)

    @property
    def quiet_s(self) -> float:
        return sum(end - start for start, end in self.quiet)


def percentile(values: list[float], percent: int) -> float:
    """Return a percentile; infinite for fewer than two values."""
    if len(values) < 2:
        return math.inf
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


@contextmanager
def few_descriptors() -> Iterator[None]:
    """A context manager that limits the descriptors of processes started within it."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def one_core() -> Iterator[None]:
    """A context manager that binds processes of its block to one core, later ones to others."""
    os.sched_setaffinity(0, CORES[:1])
    try:
        yield
    finally:
        os.sched_setaffinity(0, CORES[1:])


def attacked(cases: list[str], keeps: bool, options: argparse.Namespace) -> list[str]:
    """Run cases on a new server, and return the goals that were missed."""
    recordings = read(options.manifest)[:10]
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="attacked-"))
        folder, temporary = Path(scratch) / "state", Path(scratch) / "tmp"
        log, model = Path(scratch) / "log", Path(scratch) / "model.safetensors"
        temporary.mkdir()
        shutil.copyfile(model_path(options.model), model)
        command = [
            "-m", "asrkit", "serve", "--port", "0", "--log", "text", "--streams", str(STREAMS)
        ]  # fmt: skip
        command += ["--model", f"m={model}", *(["--state-dir", str(folder)] if keeps else [])]
        command += options.serve.split()
        with few_descriptors(), one_core() if options.apart else nullcontext():
            begun = serving(command, log, {"TMPDIR": str(temporary)})
            address, process, _ = stack.enter_context(begun)
        texts = [asyncio.run(alone(address, samples)) for samples in recordings]
        neighbours = Neighbours(address, recordings, texts)
        watched = Watched(process, [folder, temporary], log)
        trial = Trial(neighbours, watched, QUICK if options.quick else USUAL)
        host = address.removeprefix("ws://").removesuffix("/v1/stream")
        asyncio.run(trial.run(cases, host, folder))
        for reason, count in neighbours.reasons.most_common(5):
            print(f"{count} × {reason}")
    return trial.missed


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0],
        epilog="example: python tools/attack_server.py --quick --only clears data/an4/dev.jsonl",
    )
    parser.add_argument("--model", default="small-en-alnum")
    parser.add_argument("--only", action="append", choices=CASES, help="may be repeated")
    parser.add_argument(
        "--apart", action="store_true", help="the server on one core, all clients on other cores"
    )
    parser.add_argument("--quick", action="store_true", help="take seconds a case, not minutes")
    parser.add_argument("--serve", default="", help="more options of asrkit serve, in one string")
    parser.add_argument("--list", action="store_true", help="print the cases and exit")
    parser.add_argument("manifest", type=Path, nargs="?", help="recordings that neighbours send")
    options = parser.parse_args()
    if options.list:
        for name, case in CASES.items():
            print(f"{name:14}{case.about}")
        return 0
    if options.apart and len(CORES) < 2:
        parser.error("--apart needs two cores, got one")
    if options.manifest is None:
        parser.error("a manifest is missing: name one, such as data/an4/dev.jsonl")
    chosen = options.only or list(CASES)
    print(head(TITLES), flush=True)
    missed: list[str] = []
    for keeps in (False, True):
        if cases := [name for name in chosen if CASES[name].keeps == keeps]:
            missed += attacked(cases, keeps, options)
    print(f"\nmissed: {', '.join(missed) or 'nothing'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
