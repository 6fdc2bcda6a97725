"""Decode files or a manifest: python -m asrkit.decode --model MODEL a.wav b.mp3 …"""

import argparse
import sys
from functools import partial
from pathlib import Path

from tqdm import tqdm

from asrkit.build import build_normalizer
from asrkit.cli.options import (
    add_backend,
    add_batch,
    add_channel,
    add_context,
    add_model,
    add_output,
    add_search,
    add_second_pass,
    add_segments,
    load_recognizer,
    parser,
    refuse_channel,
    run_command,
)
from asrkit.cli.parser import Parser, real, same_file, whole
from asrkit.data.labelled import Labelled
from asrkit.data.manifest import LeftOut
from asrkit.data.recordings import jobs_of
from asrkit.errors import UserError, shown
from asrkit.runtime import Recognizer
from asrkit.runtime.formats import FORMATS
from asrkit.transcription.batches import Decoded, outcomes
from asrkit.transcription.output import Output, recording_of, report
from asrkit.transcription.shards import LEASE_SECONDS, decode_corpus, merged
from asrkit.transcription.workers import STARTERS

JSON = ("json", "jsonl")


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
        "--manifest", help="manifest, or lhotse's cuts; with texts, WER and CER are printed too"
    )
    add_channel(arguments, split=True)
    add_output(arguments, "txt")
    arguments.group("output").add_argument(
        "--nbest", type=whole(0, 100_000), metavar="N", default=0,
        help="the N likeliest texts with their scores, in jsonl",
    )  # fmt: skip
    add_batch(arguments)
    add_corpus(arguments)
    given = sys.argv[1:] if argv is None else argv
    return run_command(partial(decode, argv=given), arguments, argv)


def decode(options: argparse.Namespace, argv: list[str]) -> int:
    check(options)
    if not options.files and not options.manifest:
        raise UserError("nothing to decode: name audio files, or a --manifest")
    left_out: list[LeftOut] = []
    if options.manifest and not options.files:
        refuse_channel(options)
    jobs = jobs_of(options.files, options.manifest, left_out, options.channel, options.track)
    for line in left_out if options.workers else ():
        print(f"asrkit decode: {line}", file=sys.stderr)
    if not jobs and not left_out:
        raise UserError(f"{options.manifest} has no utterances to decode")
    output = None if options.shards else Output(options.format, options.output_dir, jobs)
    recognizer, config = load_recognizer(options)
    check_nbest(options, recognizer)
    if output is None:
        status = decode_corpus(options, argv, jobs, (recognizer, config))
        return 1 if left_out else status
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
    texts = [
        None if isinstance(result := done[i].result, UserError) else result.text
        for i in range(len(jobs))
    ]
    report(jobs, texts, recognizer, build_normalizer(config.text))
    return 1 if None in texts or left_out else 0


def check_nbest(options: argparse.Namespace, recognizer: Recognizer) -> None:
    """Raises UserError for an n-best list that cannot be had, or not be written."""
    if options.nbest and options.format not in JSON:
        raise UserError(f"--nbest needs --format jsonl, not {options.format}")
    search = recognizer.final_search
    if options.nbest and not search.nbest(search.start()):
        raise UserError("this search finds one text, not several: --search prefix_beam does")


def show(job: Labelled, outcome: Decoded, output: Output, nbest: int) -> None:
    """One recording's transcript, or what was wrong with it on standard error."""
    if isinstance(outcome.result, UserError):
        print(f"asrkit decode: {LeftOut(job.id, str(outcome.result))}", file=sys.stderr)
    else:
        output.write(job, recording_of(job, outcome.result, outcome.seconds, nbest))


def add_corpus(arguments: Parser) -> None:
    """Add the options of a corpus that is decoded in shards."""
    group = arguments.group("a corpus")
    group.add_argument(
        "--shards", type=whole(1, 1_000_000), metavar="N",
        help="decode a manifest in N parts, and join them to one file in --output-dir; the same"
        " command shares the work with others that run, and resumes what was stopped",
    )  # fmt: skip
    group.add_argument(
        "--workers", type=whole(0, 1024), metavar="W", default=1,
        help="processes to start here; 0: only help others, which join the parts (default 1)",
    )  # fmt: skip
    group.add_argument(
        "--engine", choices=STARTERS, default="processes",
        help="what starts the workers (default processes)",
    )  # fmt: skip
    group.add_argument(
        "--lease-seconds", type=real(0.1, 86_400.0), metavar="SECONDS",
        help="after which a part whose process has gone is another's (default "
        f"{LEASE_SECONDS:g}; equal for all)",
    )  # fmt: skip


def check(options: argparse.Namespace) -> None:
    """Raises UserError for options that do not fit together."""
    if options.shards is None:
        if options.workers != 1 or options.engine != "processes":
            raise UserError("--workers and --engine need --shards N, the parts of the corpus")
        if options.lease_seconds is not None:
            raise UserError("--lease-seconds needs --shards N: it is how long a shard is taken")
        return
    if options.files or not options.manifest or not options.output_dir:
        raise UserError("--shards needs a --manifest and an --output-dir, and takes no files")
    if not FORMATS[options.format].joins:
        joining = ", ".join(form for form in FORMATS if FORMATS[form].joins)
        raise UserError(
            f"--shards writes one file, and one of {options.format} holds one recording: "
            f"--format must be one of {joining}"
        )
    if same_file(str(merged(options)), options.manifest):
        raise UserError(f"{shown(Path(options.manifest))} is read: name another --output-dir")
