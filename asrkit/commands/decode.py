"""Decode files or a manifest: python -m asrkit.decode --model MODEL a.wav b.mp3 …"""

import argparse
import sys
from pathlib import Path

from tqdm import tqdm

from asrkit.cli.options import refuse_channel
from asrkit.cli.parser import same_file
from asrkit.cli.recognizer import load_recognizer
from asrkit.data.labelled import Labelled
from asrkit.data.manifest import LeftOut
from asrkit.data.recordings import jobs_of
from asrkit.errors import UserError, shown
from asrkit.runtime import Recognizer
from asrkit.runtime.formats import FORMATS
from asrkit.training.progress import duration
from asrkit.transcription.batches import Decoded, outcomes
from asrkit.transcription.output import Output, recording_of, report
from asrkit.transcription.shards import decode_corpus, merged

JSON = ("json", "jsonl")


def decode(options: argparse.Namespace) -> int:
    check(options)
    if not options.files and not options.manifest:
        raise UserError("nothing to decode: name audio files, or a --manifest")
    left_out: list[LeftOut] = []
    if options.manifest:
        refuse_channel(options)
    jobs = jobs_of(options.files, options.manifest, left_out, options.channel, options.track)
    for line in left_out if options.workers else ():
        print(f"asrkit decode: {line}", file=sys.stderr)
    if not jobs and not left_out:
        raise UserError(f"{options.manifest} has no utterances to decode")
    output = None if options.shards else Output(options.format, options.output_dir, jobs)
    recognizer = load_recognizer(options)
    check_nbest(options, recognizer)
    if output is None:
        status = decode_corpus(options, jobs, recognizer)
        return 1 if left_out else status
    done: dict[int, Decoded] = {}
    shown = 0  # results arrive by length; each is shown in order, after all before it
    bar = tqdm(total=len(jobs), unit=" file", disable=None, leave=False)
    seconds = 0.0

    def read(more: float) -> None:  # also called within a long file, to show its progress
        nonlocal seconds
        seconds += more
        bar.set_postfix_str(f"{duration(seconds)} of audio")

    for outcome in outcomes(recognizer, jobs, options.batch_seconds, read):
        bar.update()
        done[outcome.number] = outcome
        with bar.external_write_mode():
            while shown in done:
                show(jobs[shown], done[shown], output, options.nbest)
                shown += 1
    bar.close()
    texts = [
        None if isinstance(result := done[i].result, UserError) else result.text
        for i in range(len(jobs))
    ]
    report(jobs, texts, recognizer)
    return 1 if None in texts or left_out else 0


def check_nbest(options: argparse.Namespace, recognizer: Recognizer) -> None:
    """Raise UserError for an n-best list that cannot be made or written."""
    if options.nbest and options.format not in JSON:
        raise UserError(f"--nbest needs --format jsonl, got {options.format}")
    search = recognizer.final_search
    if options.nbest and not search.nbest(search.start()):
        raise UserError("--nbest needs --search prefix_beam; greedy search has one result")


def show(job: Labelled, outcome: Decoded, output: Output, nbest: int) -> None:
    """Write a recording's transcript, or report its error on standard error."""
    if isinstance(outcome.result, UserError):
        print(f"asrkit decode: {LeftOut(job.id, str(outcome.result))}", file=sys.stderr)
    else:
        output.write(job, recording_of(job, outcome.result, outcome.seconds, nbest))


def check(options: argparse.Namespace) -> None:
    """Raise UserError for options that do not fit together."""
    if options.shards is None:
        if options.workers != 1 or options.engine != "processes":
            raise UserError("--workers and --engine need --shards N, the parts of the corpus")
        if options.lease_seconds is not None:
            raise UserError("--lease-seconds needs --shards N: the time for which a part is taken")
        return
    if options.files or not options.manifest or not options.output_dir:
        raise UserError("--shards needs a --manifest and an --output-dir, and takes no files")
    if not FORMATS[options.format].joins:
        joining = ", ".join(form for form in FORMATS if FORMATS[form].joins)
        raise UserError(
            f"--shards writes one file, but {options.format} allows one recording per file: "
            f"--format must be one of {joining}"
        )
    if same_file(str(merged(options)), options.manifest):
        raise UserError(f"{shown(Path(options.manifest))} is read: name another --output-dir")
