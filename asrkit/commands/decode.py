"""Decode files or a manifest: python -m asrkit.decode --model MODEL a.wav b.mp3 …"""

import argparse
import sys
from pathlib import Path

from tqdm import tqdm

from asrkit.cli.options import check_speakers, refuse_channel
from asrkit.cli.parser import same_file
from asrkit.cli.recognizer import load_recognizer
from asrkit.data.labelled import Labelled, jobs_of
from asrkit.data.manifest import LeftOut
from asrkit.errors import UserError, shown
from asrkit.runtime import Recognizer
from asrkit.runtime.dialogue import calls
from asrkit.runtime.formats import FORMATS
from asrkit.runtime.words import sureness
from asrkit.training.progress import duration
from asrkit.transcription.batches import Decoded, outcomes
from asrkit.transcription.output import Output, recording_of, report
from asrkit.transcription.pseudo_labels import (
    ConfidentManifest,
    apart,
    check_confident,
    check_plain,
)
from asrkit.transcription.shards import decode_corpus, merged

JSON = ("json", "jsonl")


def decode(options: argparse.Namespace) -> int:
    check(options)
    check_speakers(options)
    if not options.files and not options.manifest:
        raise UserError("nothing to decode: name audio files, or a --manifest")
    left_out: list[LeftOut] = []
    if options.manifest:
        refuse_channel(options)
    jobs = jobs_of(
        options.files, options.manifest, left_out, options.channel, options.track, options.speakers
    )
    for line in left_out if options.workers else ():
        print(f"asrkit decode: {line}", file=sys.stderr)
    if not jobs and not left_out:
        raise UserError(f"{options.manifest} has no utterances to decode")
    groups = calls(jobs)
    firsts = [group[0] for group in groups]
    output: Output | ConfidentManifest | None = None
    if options.confident is not None:
        check_plain(jobs)
        groups = [[job] for group in groups for job in apart(group)]
        output = ConfidentManifest(options.output, options.confident)
    elif not options.shards:
        output = Output(options.format, options.output_dir, firsts)
    recognizer = load_recognizer(options)
    check_nbest(options, recognizer)
    if output is None:
        status = decode_corpus(options, jobs, recognizer)
        return 1 if left_out else status
    done: dict[int, Decoded] = {}
    at = 0  # results arrive by length; each is shown in order, after all before it
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
            while groups and all(at + i in done for i in range(len(groups[0]))):
                group = groups.pop(0)
                show(group, [done[at + i] for i in range(len(group))], output, options.nbest)
                at += len(group)
    bar.close()
    results = [None if isinstance(r := done[i].result, UserError) else r for i in range(len(jobs))]
    texts = [None if result is None else result.text for result in results]
    sure = [sureness(result.words) for result in results if result is not None]
    report(jobs, texts, sure, recognizer)
    if isinstance(output, ConfidentManifest):
        told = output.save()
        print(
            told + output.error_rate(lambda text: recognizer.rewrite(recognizer.normalizer(text)))
        )
    return 1 if None in texts or left_out else 0


def check_nbest(options: argparse.Namespace, recognizer: Recognizer) -> None:
    """Raise UserError for an n-best list that cannot be made or written."""
    if options.nbest and options.format not in JSON:
        raise UserError(f"--nbest needs --format jsonl, got {options.format}")
    search = recognizer.final_search
    if options.nbest and not search.nbest(search.start()):
        raise UserError("--nbest needs --search prefix_beam; greedy search has one result")


def show(
    jobs: list[Labelled], outcomes: list[Decoded], output: Output | ConfidentManifest, nbest: int
) -> None:
    """Write the transcript of a recording's channels; report errors on standard error."""
    call, errors = [], dict[str, None]()
    for job, outcome in zip(jobs, outcomes, strict=True):
        if isinstance(outcome.result, UserError):
            errors[f"asrkit decode: {LeftOut(job.id, str(outcome.result))}"] = None
        else:
            call.append(recording_of(job, outcome.result, outcome.seconds, nbest))
    for line in errors:  # one for all channels of a file that cannot be read
        print(line, file=sys.stderr)
    if call:
        output.write(jobs[0], call)


def check(options: argparse.Namespace) -> None:
    """Raise UserError for options that do not fit together."""
    check_confident(options)
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
