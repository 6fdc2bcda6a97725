"""Decode files or a manifest: python -m asrkit.decode --model MODEL a.wav b.mp3 …"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from asrkit.cli.choices import ENGINES, LEASE_SECONDS
from asrkit.cli.options import (
    add_batch,
    add_channel,
    add_model,
    add_output,
    add_recognizer,
    check_speakers,
    refuse_channel,
)
from asrkit.cli.parser import Parser, Target, real, same_file, whole
from asrkit.errors import UserError, shown

if TYPE_CHECKING:
    from asrkit.data.labelled import Labelled
    from asrkit.data.manifest import LeftOut
    from asrkit.runtime import Recognizer
    from asrkit.transcription.batches import Decoded
    from asrkit.transcription.output import Output
    from asrkit.transcription.pseudo_labels import ConfidentManifest


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit decode", __doc__,
        "asrkit decode --model exp/conformer/model.safetensors a.wav b.mp3\n"
        "  asrkit decode --model MODEL --manifest test.jsonl --chunk-ms 640\n"
        "  asrkit decode --manifest new.jsonl --confident 0.9 --output pseudo.jsonl",
        "--model MODEL [options] FILE … | --manifest MANIFEST",
    )  # fmt: skip
    add_model(arguments)
    add_recognizer(arguments)
    arguments.add_argument("files", nargs="*", metavar="FILE", help="an audio file, or a folder")
    arguments.add_argument(
        "--manifest", help="manifest, or lhotse's cuts; with texts, WER and CER are printed too"
    )
    add_channel(arguments, split=True)
    add_output(arguments, "txt")
    arguments.group("output").add_argument(
        "--nbest", type=whole(0, 100_000), metavar="N", default=0,
        help="the N likeliest texts with their scores, in jsonl",
    )  # fmt: skip
    arguments.group("output").add_argument(
        "--confident", type=real(0.0, 1.0), metavar="P",
        help="write a manifest for training, of the texts whose words have a mean confidence of P",
    )  # fmt: skip
    arguments.group("output").add_argument(
        "--output", type=Target, metavar="FILE", help="the manifest of --confident"
    )
    add_batch(arguments)
    add_corpus(arguments)
    arguments.set_defaults(argv=tuple(sys.argv[1:] if argv is None else argv))  # for workers
    return arguments.run(decode, argv)


def add_corpus(arguments: Parser) -> None:
    """Add the options of a corpus that is decoded in shards."""
    group = arguments.group("a corpus")
    group.add_argument(
        "--shards", type=whole(1, 1_000_000), metavar="N",
        help="decode a manifest in N parts, and join them to one file in --output-dir; the same"
        " command shares the work with other running ones, and resumes stopped ones",
    )  # fmt: skip
    group.add_argument(
        "--workers", type=whole(0, 1024), metavar="W", default=1,
        help="processes to start here; 0: only join parts (default 1)",
    )  # fmt: skip
    group.add_argument(
        "--engine", choices=ENGINES, default="processes",
        help="starter of the workers (default processes)",
    )  # fmt: skip
    group.add_argument(
        "--lease-seconds", type=real(0.1, 86_400.0), metavar="SECONDS",
        help="time after which another process takes the part of one that has ended (default "
        f"{LEASE_SECONDS:g}; equal for all)",
    )  # fmt: skip


JSON = ("json", "jsonl")


def decode(options: argparse.Namespace) -> int:
    from tqdm import tqdm

    from asrkit.cli.recognizer import load_recognizer
    from asrkit.data.labelled import jobs_of
    from asrkit.runtime.formats import calls
    from asrkit.runtime.words import sureness
    from asrkit.training.progress import duration
    from asrkit.transcription.batches import outcomes
    from asrkit.transcription.output import Output, report
    from asrkit.transcription.pseudo_labels import ConfidentManifest, apart, check_plain
    from asrkit.transcription.shards import decode_corpus

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
    from asrkit.data.manifest import LeftOut
    from asrkit.transcription.output import recording_of

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
    from asrkit.runtime.formats import FORMATS
    from asrkit.transcription.pseudo_labels import check_confident
    from asrkit.transcription.shards import merged

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
