"""Decode files or a manifest: python -m asrkit.decode --model MODEL a.wav b.mp3 …"""

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tqdm import tqdm

from asrkit import audio
from asrkit.build import build_normalizer
from asrkit.commands.arguments import whole
from asrkit.commands.options import (
    add_backend,
    add_batch,
    add_context,
    add_model,
    add_search,
    add_second_pass,
    add_segments,
    load_recognizer,
    parser,
    run_command,
)
from asrkit.commands.recordings import (
    PIECE_SECONDS,
    Job,
    Output,
    add_output,
    by_length,
    jobs_of,
    seconds_of,
    transcribe,
)
from asrkit.data.manifest import LeftOut
from asrkit.errors import UserError
from asrkit.evaluation.wer import cer, wer
from asrkit.extras import need
from asrkit.runtime import Recognizer, Result, Segment
from asrkit.runtime.formats import Recording

JSON = ("json", "jsonl")


class Decoded(NamedTuple):
    """What became of a job."""

    number: int  # of the job
    result: Result | UserError
    seconds: float = 0.0  # of audio


def main(argv: list[str] | None = None) -> int:
    arguments = parser(
        "asrkit decode", __doc__,
        "asrkit decode --model exp/conformer/model.safetensors a.wav b.mp3\n"
        "  asrkit decode --model MODEL --manifest test.jsonl --chunk-ms 640",
        "--model MODEL [options] FILE … | --manifest MANIFEST",
    )  # fmt: skip
    add_model(arguments)
    add_context(arguments)
    add_backend(arguments)
    add_search(arguments)
    add_segments(arguments)
    add_second_pass(arguments)
    arguments.add_argument("files", nargs="*", metavar="FILE", help="an audio file")
    arguments.add_argument(
        "--manifest", help="JSONL manifest; with texts, WER and CER are printed too"
    )
    add_output(arguments, "txt")
    arguments.group("output").add_argument(
        "--nbest", type=whole(0, 100_000), metavar="N", default=0,
        help="the N likeliest texts with their scores, in jsonl",
    )  # fmt: skip
    add_batch(arguments)
    return run_command(decode, arguments, argv)


def decode(options: argparse.Namespace) -> int:
    if not options.files and not options.manifest:
        raise UserError("nothing to decode: name audio files, or a --manifest")
    left_out: list[LeftOut] = []
    jobs = jobs_of(options.files, options.manifest, left_out)
    for line in left_out:
        print(f"asrkit decode: {line}", file=sys.stderr)
    if not jobs and not left_out:
        raise UserError(f"{options.manifest} has no utterances to decode")
    output = Output(options.format, options.output_dir, jobs)
    recognizer, config = load_recognizer(options)
    check_nbest(options, recognizer)
    done: dict[int, Decoded] = {}
    shown = 0  # results come by length and are shown in order, as soon as those before are there
    bar = tqdm(total=len(jobs), unit=" file", disable=None, leave=False)
    for outcome in outcomes(recognizer, jobs, options.batch_seconds):
        bar.update()
        done[outcome.number] = outcome
        with bar.external_write_mode():
            while shown in done:
                show(jobs[shown], done[shown], output, options.nbest)
                shown += 1
    bar.close()
    failed = sum(isinstance(outcome.result, UserError) for outcome in done.values())
    normalize = build_normalizer(config.text)
    report(jobs, done, lambda text: recognizer.rewrite(normalize(text)))
    return 1 if failed or left_out else 0


def check_nbest(options: argparse.Namespace, recognizer: Recognizer) -> None:
    """Raises UserError for an n-best list that cannot be had, or not be written."""
    if options.nbest and options.format not in JSON:
        raise UserError(f"--nbest needs --format jsonl, not {options.format}")
    search = recognizer.final_search
    if options.nbest and not search.nbest(search.start()):
        raise UserError("this search finds one text, not several: --search prefix_beam does")


def outcomes(recognizer: Recognizer, jobs: list[Job], batch_seconds: float) -> Iterator[Decoded]:
    """A result or the error of every job, in batches of similar length as files come in.

    Long recordings go alone and piece by piece; the numbers are the same either way.
    """
    waiting: list[tuple[int, Any]] = []
    seconds = 0.0
    for index, job in enumerate(jobs):
        try:
            length, rate = seconds_of(job)
            if length > PIECE_SECONDS:
                yield Decoded(index, transcribe(recognizer, job, rate), length)
                continue
            samples = audio.load(job.path, job.start, job.duration)
        except UserError as error:
            yield Decoded(index, error)
            continue
        waiting.append((index, samples))
        seconds += length
        if seconds > 8 * batch_seconds:
            yield from batches(recognizer, waiting, batch_seconds)
            waiting, seconds = [], 0.0
    yield from batches(recognizer, waiting, batch_seconds)


def batches(
    recognizer: Recognizer, waiting: list[tuple[int, Any]], batch_seconds: float
) -> Iterator[Decoded]:
    """Results of loaded recordings, those of similar length together."""
    for batch in by_length(waiting, lambda item: len(item[1]) / audio.SAMPLE_RATE, batch_seconds):
        results = results_of(recognizer, [samples for _, samples in batch])
        for (index, samples), result in zip(batch, results, strict=True):
            yield Decoded(index, result, len(samples) / audio.SAMPLE_RATE)


def results_of(recognizer: Recognizer, batch: list[Any]) -> list[Result | UserError]:
    """A result for each recording, or what is wrong with it: the others have theirs."""
    try:
        return [*recognizer.transcribe_batch(batch)]
    except UserError as error:
        if len(batch) == 1:
            return [error]
        return [result for samples in batch for result in results_of(recognizer, [samples])]


def show(job: Job, outcome: Decoded, output: Output, nbest: int) -> None:
    """One recording's transcript, or what was wrong with it on standard error."""
    result = outcome.result
    if isinstance(result, UserError):
        print(f"asrkit decode: {LeftOut(job.id, str(result))}", file=sys.stderr)
        return
    more: dict[str, Any] = {} if job.text is None else {"reference": job.text}
    if len(result.segments) > 1:
        more["segments"] = [
            {
                "text": each.text,
                "start": each.start,
                "end": each.end,
                "context": each.context,
                **texts(each, nbest),
            }
            for each in result.segments
        ]
    else:
        more |= texts(result, nbest)
    output.write(job, Recording(result.words, job.id, outcome.seconds, more))


def texts(result: Result | Segment, nbest: int) -> dict[str, Any]:
    """The likeliest texts, if they are asked for."""
    return {"nbest": [each._asdict() for each in result.nbest[:nbest]]} if nbest else {}


def report(jobs: list[Job], done: dict[int, Decoded], normalize: Callable[[str], str]) -> None:
    """Error rates of the recordings that have a reference, on standard error."""
    references, hypotheses, failed = [], [], 0
    for index, job in enumerate(jobs):
        result = done[index].result
        if job.text is None or isinstance(result, UserError):
            failed += job.text is not None
            continue
        references.append(normalize(job.text))
        hypotheses.append(result.text)
    if not references:
        return
    try:
        need("jiwer")
    except UserError as error:
        print(f"asrkit decode: no error rates: {error}", file=sys.stderr)
    else:
        without = f" without {failed} that could not be decoded" if failed else ""
        print(f"WER {wer(references, hypotheses)}{without}", file=sys.stderr)
        print(f"CER {cer(references, hypotheses)}{without}", file=sys.stderr)
