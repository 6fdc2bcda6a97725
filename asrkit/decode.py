"""Decode files or a manifest: python -m asrkit.decode --model MODEL a.wav b.mp3 …"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tqdm import tqdm

from asrkit import audio
from asrkit.build import build_normalizer
from asrkit.cli import (
    add_batch,
    add_context,
    add_model,
    add_search,
    add_segments,
    load_recognizer,
    parser,
    run_command,
)
from asrkit.data.manifest import LeftOut, read_manifest
from asrkit.errors import UserError
from asrkit.runtime import Recognizer, Result
from asrkit.text import cer, wer

ALONE_SECONDS = 60.0  # longer recordings are decoded piece by piece, by themselves


class Job(NamedTuple):
    """A file to decode, its reference if there is one, and the part of the file that is meant."""

    id: str
    path: str
    reference: str | None = None
    start: float = 0.0
    duration: float | None = None


def main(argv: list[str] | None = None) -> int:
    arguments = parser(
        "asrkit decode", __doc__,
        "python -m asrkit.decode --model exp/conformer/model.safetensors a.wav b.mp3\n"
        "  python -m asrkit.decode --model MODEL --manifest data/digits/test.jsonl --chunk-ms 640",
    )  # fmt: skip
    add_model(arguments)
    add_context(arguments)
    add_search(arguments)
    add_segments(arguments)
    arguments.add_argument("files", nargs="*", help="audio files")
    arguments.add_argument(
        "--manifest", help="JSONL manifest; with texts, WER and CER are printed too"
    )
    arguments.add_argument("--format", choices=["text", "jsonl"], default="text")
    add_batch(arguments)
    return run_command(decode, arguments, argv)


def decode(options: argparse.Namespace) -> int:
    if not options.files and not options.manifest:
        raise UserError("nothing to decode: name audio files, or a --manifest")
    jobs = [Job(path, path) for path in options.files]
    left_out: list[LeftOut] = []
    if options.manifest:
        jobs += [
            Job(u.id, u.audio, u.text, u.start or 0.0, u.duration)
            for u in read_manifest(options.manifest, left_out)
        ]
    for line in left_out:
        print(f"asrkit decode: {line.id}: {line.reason}", file=sys.stderr)
    recognizer, config = load_recognizer(options)
    done: dict[int, Result | UserError] = {}
    shown = 0  # results come by length and are shown in order, as soon as those before are there
    bar = tqdm(total=len(jobs), unit=" file", disable=None, leave=False)
    for index, outcome in outcomes(recognizer, jobs, options.batch_seconds):
        bar.update()
        done[index] = outcome
        with bar.external_write_mode():
            while shown in done:
                show(jobs[shown], done[shown], options.format, several=len(jobs) > 1)
                shown += 1
    bar.close()
    failed = sum(isinstance(outcome, UserError) for outcome in done.values())
    report(jobs, done, build_normalizer(config.text))
    return 1 if failed or left_out else 0


def outcomes(
    recognizer: Recognizer, jobs: list[Job], batch_seconds: float
) -> Iterator[tuple[int, Result | UserError]]:
    """A result or the error of every job, in batches of similar length as files come in.

    Long recordings go alone and piece by piece; the numbers are the same either way.
    """
    waiting: list[tuple[int, Any]] = []
    seconds = 0.0
    for index, job in enumerate(jobs):
        try:
            rate, num_samples, _ = audio.info(job.path)
            if (job.duration or num_samples / rate - job.start) > ALONE_SECONDS:
                yield index, alone(recognizer, job, rate)
                continue
            samples, rate = audio.read(job.path, job.start, job.duration)
            samples = audio.resample(audio.mono(samples), rate)
        except audio.AudioError as error:
            yield index, error
            continue
        waiting.append((index, samples))
        seconds += len(samples) / audio.SAMPLE_RATE
        if seconds > 8 * batch_seconds:
            yield from batches(recognizer, waiting, batch_seconds)
            waiting, seconds = [], 0.0
    yield from batches(recognizer, waiting, batch_seconds)


def alone(recognizer: Recognizer, job: Job, rate: int) -> Result:
    """A long recording, read and decoded piece by piece."""
    session = recognizer.start(rate)
    for block, _ in audio.blocks(job.path, ALONE_SECONDS, job.start, job.duration):
        session.accept(block)
    return session.finish()


def batches(
    recognizer: Recognizer, waiting: list[tuple[int, Any]], batch_seconds: float
) -> Iterator[tuple[int, Result]]:
    """Results of loaded recordings, those of similar length together."""
    waiting = sorted(waiting, key=lambda item: len(item[1]))
    while waiting:
        longest = len(waiting[-1][1]) / audio.SAMPLE_RATE
        count = max(1, int(batch_seconds / max(longest, 0.1)))
        batch, waiting = waiting[-count:], waiting[:-count]
        results = recognizer.transcribe_batch([samples for _, samples in batch])
        yield from zip([index for index, _ in batch], results, strict=True)


def show(job: Job, outcome: Result | UserError, form: str, several: bool) -> None:
    """One recording on standard output, or what was wrong with it on standard error."""
    if isinstance(outcome, UserError):
        print(f"asrkit decode: {job.id}: {outcome}", file=sys.stderr)
        return
    if form == "text":
        print(f"{job.id}\t{outcome.text}" if several else outcome.text, flush=True)
        return
    line = {"id": job.id, "text": outcome.text, "words": [word._asdict() for word in outcome.words]}
    if len(outcome.segments) > 1:
        line["segments"] = [
            {"text": segment.text, "start": segment.start, "end": segment.end}
            for segment in outcome.segments
        ]
    if job.reference is not None:
        line["reference"] = job.reference
    print(json.dumps(line, ensure_ascii=False), flush=True)


def report(
    jobs: list[Job], done: dict[int, Result | UserError], normalize: Callable[[str], str]
) -> None:
    """Error rates of the recordings that have a reference, on standard error."""
    references, hypotheses, failed = [], [], 0
    for index, job in enumerate(jobs):
        outcome = done[index]
        if job.reference is None or isinstance(outcome, UserError):
            failed += job.reference is not None
            continue
        references.append(normalize(job.reference))
        hypotheses.append(outcome.text)
    if references:
        without = f" without {failed} that could not be decoded" if failed else ""
        print(f"WER {wer(references, hypotheses)}{without}", file=sys.stderr)
        print(f"CER {cer(references, hypotheses)}{without}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
