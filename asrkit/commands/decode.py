"""Decode files or a manifest: python -m asrkit.decode --model MODEL a.wav b.mp3 …"""

import argparse
import sys
from functools import partial

from tqdm import tqdm

from asrkit.build import build_normalizer
from asrkit.commands.arguments import whole
from asrkit.commands.corpus import add_corpus, check, decode_corpus
from asrkit.commands.decoded import Decoded, outcomes, recording_of, report
from asrkit.commands.options import (
    add_backend,
    add_batch,
    add_channel,
    add_context,
    add_model,
    add_search,
    add_second_pass,
    add_segments,
    load_recognizer,
    parser,
    refuse_channel,
    run_command,
)
from asrkit.commands.recordings import Output, add_output, jobs_of
from asrkit.data.labelled import Labelled
from asrkit.data.manifest import LeftOut
from asrkit.errors import UserError
from asrkit.runtime import Recognizer

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
