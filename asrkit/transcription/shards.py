"""Decoding of a corpus in shards, by any number of processes: see `asrkit.transcription.leases`.

The result of a shard is a file with two lines of JSON: its name with the SHA-256 of the second
line, and an entry for each utterance. A shard with any other file is decoded again. The name is a
hash of everything that determines the text: other models or options have other files.
"""

import argparse
import hashlib
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter
from tqdm import tqdm

from asrkit.atomic_write import replacing
from asrkit.data.labelled import Labelled
from asrkit.data.manifest import LeftOut
from asrkit.errors import UserError, printable, shown
from asrkit.runtime import Recognizer, Result
from asrkit.runtime.formats import FORMATS
from asrkit.runtime.words import sureness
from asrkit.transcription.batches import outcomes
from asrkit.transcription.leases import ATTEMPTS, Leases
from asrkit.transcription.output import in_a_row, recording_of, report
from asrkit.transcription.workers import STARTERS, stopped_by_sigterm
from asrkit.version import __version__

NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # nor wait at pipes


LEASE_SECONDS = 60.0


class ShardEntry(NamedTuple):
    """An utterance in the result of a shard."""

    id: str
    seconds: float  # seconds of audio
    text: str | None  # None if it could not be decoded
    shown: str  # text in the output's format, or the reason why it could not be decoded
    sureness: float | None = None


class DecodedShard(NamedTuple):
    """The result of a shard."""

    entries: list[ShardEntry]
    seconds: float  # computing time


DECODED = TypeAdapter(DecodedShard)


def merged(options: argparse.Namespace) -> Path:
    """Return the path of the joined output."""
    return Path(options.output_dir, f"{Path(options.manifest).stem}.{options.format}")


def shares(jobs: Sequence[Labelled], count: int) -> list[list[Labelled]]:
    """Split the jobs into at most `count` parts in order, of similar durations if all are known."""
    known = all(job.duration is not None for job in jobs)
    seconds = [job.duration or 0.0 if known else 1.0 for job in jobs]
    total, before, parts = sum(seconds) or 1.0, 0.0, []
    for length in seconds:
        parts.append(min(int((before + length / 2) / total * count), count - 1))
        before += length
    numbered = zip(parts, jobs, strict=True)
    return [[job for _, job in part] for _, part in groupby(numbered, lambda each: each[0])]


def header(name: str, body: bytes) -> bytes:
    """Return the first line of a shard's result."""
    digest = hashlib.sha256(name.encode() + body).hexdigest()
    return json.dumps({"shard": name, "sha256": digest}).encode()


class ShardedCorpus:
    """The shards of a manifest, with their results in a folder."""

    def __init__(
        self, jobs: Sequence[Labelled], recognizer: Recognizer, options: argparse.Namespace
    ) -> None:
        self.recognizer, self.options = recognizer, options
        self.several = len(jobs) > 1
        self.folder = Path(options.output_dir, "shards")
        self.folder.mkdir(parents=True, exist_ok=True)
        same = [__version__, recognizer.identity(), options.format, options.nbest, self.several]
        self.shards: dict[str, list[Labelled]] = {}
        for number, part in enumerate(shares(jobs, options.shards)):
            digest = hashlib.sha256(
                json.dumps([same, [job._replace(cut=None) for job in part]]).encode()
            ).hexdigest()
            self.shards[f"{number:06}-{digest[:32]}"] = part

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def read(self, name: str) -> DecodedShard | None:
        """Read the result of a shard; None if it is missing, damaged or of other utterances."""
        try:
            file = os.open(self.path(name), os.O_RDONLY | NO_LINK)
            with os.fdopen(file, "rb") as lines:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    return None
                head, body = lines.read().split(b"\n", 1)
            if head != header(name, body):
                return None
            found = DECODED.validate_json(body, strict=True)
        except (OSError, ValueError):
            return None
        ids = [entry.id for entry in found.entries]
        return found if ids == [job.id for job in self.shards[name]] else None

    def decode(self, name: str) -> None:
        """Decode a shard and write its result."""
        jobs, started = self.shards[name], time.perf_counter()
        entries = {
            each.number: self.entry(jobs[each.number], each.result, each.seconds)
            for each in outcomes(self.recognizer, jobs, self.options.batch_seconds)
        }
        found = DecodedShard([entries[i] for i in range(len(jobs))], time.perf_counter() - started)
        path = self.path(name)
        if path.is_symlink():  # `replacing` would write to its target
            path.unlink()
        with replacing(path) as temporary, temporary.open("wb") as file:
            body = json.dumps(found).encode()
            file.write(header(name, body) + b"\n" + body)

    def entry(self, job: Labelled, result: Result | UserError, seconds: float) -> ShardEntry:
        if isinstance(result, UserError):
            return ShardEntry(job.id, seconds, None, str(result))
        recording = recording_of(job, result, seconds, self.options.nbest)
        shown = in_a_row(self.options.format, job, [recording], self.several)
        return ShardEntry(job.id, seconds, result.text, shown, sureness(result.words))

    def is_done(self, name: str) -> bool:
        return self.read(name) is not None

    def join(self, path: Path) -> DecodedShard:
        """Join the texts of all shards in one file; return the entries without `shown`."""
        entries, seconds = [], 0.0
        with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
            file.write(FORMATS[self.options.format].header)
            for name in self.shards:
                if (found := self.read(name)) is None:
                    raise UserError(
                        f"{shown(self.path(name))} was removed or changed: run this again"
                    )
                for entry in found.entries:
                    if entry.text is None:
                        print(f"asrkit decode: {LeftOut(entry.id, entry.shown)}", file=sys.stderr)
                    else:
                        file.write(entry.shown)
                entries += [entry._replace(shown="") for entry in found.entries]
                seconds += found.seconds
        return DecodedShard(entries, seconds)


def decode_corpus(
    options: argparse.Namespace, jobs: Sequence[Labelled], recognizer: Recognizer
) -> int:
    """Decode the shards together with other processes, join them, and return the exit status."""
    corpus = ShardedCorpus(jobs, recognizer, options)
    leases = Leases(corpus.folder, options.lease_seconds or LEASE_SECONDS)
    helps, left = options.workers == 0, {*corpus.shards}
    with ExitStack() as stack:
        stack.enter_context(stopped_by_sigterm())
        bar = tqdm(total=len(jobs), unit=" file", disable=helps or None, leave=False)
        stack.enter_context(bar)
        look: Callable[[], None] = lambda: None  # noqa: E731
        do: Callable[[str], None] | None = corpus.decode
        if options.workers > 1 or (options.engine != "processes" and not helps):
            look, do = stack.enter_context(STARTERS[options.engine](options, len(left))), None
        for name in leases.work(corpus.shards, corpus.is_done, do):
            bar.update(len(corpus.shards.get(name, ())))
            left.discard(name)
            look()
    if helps:
        return 0
    for name in sorted(left):
        ids = [printable(corpus.shards[name][at].id) for at in (0, -1)]
        print(
            f"asrkit decode: {ATTEMPTS} processes ended while they decoded {' to '.join(ids)}; "
            f"remove {shown(leases.path(name, 0))} and its other leases to try again",
            file=sys.stderr,
        )  # fmt: skip
    if left:
        return 1
    found = corpus.join(merged(options))
    texts = [entry.text for entry in found.entries]
    sure = [entry.sureness for entry in found.entries if entry.text is not None]
    report(jobs, texts, sure, recognizer)
    print(f"{summary(found)}: {shown(merged(options))}", file=sys.stderr)
    return 1 if None in texts else 0


def summary(found: DecodedShard) -> str:
    """Describe the decoded audio and the speed of a worker; the command may have been resumed."""
    left_out = sum(entry.text is None for entry in found.entries)
    seconds = sum(entry.seconds for entry in found.entries)
    return (
        f"{len(found.entries) - left_out} utterances, {seconds / 3600:.2f} hours, "
        f"RTFx {seconds / max(found.seconds, 1e-9):.1f} of a worker, {left_out} left out"
    )
