"""Align a known text with its audio: asrkit align --model M a.wav --text "no" """

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from asrkit.cli.options import add_channel, add_context, add_model, add_output, refuse_channel
from asrkit.cli.parser import Parser, complain
from asrkit.errors import UserError

if TYPE_CHECKING:
    from asrkit.data.manifest import LeftOut
    from asrkit.data.recording import Recording
    from asrkit.runtime import Recognizer, formats


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit align", __doc__,
        'asrkit align --model MODEL a.wav --text "seven eight"\n'
        "  asrkit align --model MODEL --manifest m.jsonl --format textgrid"
        " --output-dir aligned",
    )  # fmt: skip
    add_model(arguments)
    add_context(arguments, chunk_ms="full")
    arguments.add_argument("file", nargs="?", help="an audio file")
    source = arguments.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", help="the transcript of the file")
    source.add_argument("--manifest", help="manifest, or a folder of shards, with texts")
    add_channel(arguments)
    add_output(arguments, "jsonl")
    return arguments.run(align, argv)


def align(options: argparse.Namespace) -> int:
    from asrkit.cli.recognizer import aligner_of, context_of
    from asrkit.data.inputs import file_of, jobs_of
    from asrkit.data.manifest import LeftOut
    from asrkit.runtime.load import load_runnable
    from asrkit.transcription.output import Output

    if (options.file is None) == (options.manifest is None):
        raise UserError("--text needs an audio file; --manifest takes none")
    left_out: list[LeftOut] = []
    if options.manifest:
        refuse_channel(options)
        jobs = jobs_of([], options.manifest, left_out)
    else:
        where = {"channel": options.channel, "track": options.track}
        jobs = [file_of(options.file, text=options.text, **where)]
    output = Output(options.format, options.output_dir, jobs)
    file = load_runnable(options.model)
    recognizer = aligner_of(options, file, context_of(options, file))
    for job in jobs:
        try:
            output.write(job, [aligned(recognizer, job)])
        except UserError as error:
            left_out.append(LeftOut(job.id, str(error)))
    for line in left_out:
        complain("asrkit align", line)
    return 1 if left_out else 0


def aligned(recognizer: Recognizer, job: Recording) -> formats.Recording:
    """Return the words of a job's text with their times, by forced alignment."""
    from asrkit.data.recording import timed
    from asrkit.runtime import formats

    text = recognizer.normalizer(job.text or "")
    if not text:
        raise UserError("the text to align is missing or empty")
    aligner = recognizer.with_alignment(recognizer.tokenizer.encode(text))
    lengths: list[float] = []
    words = aligner.transcribe_blocks(timed(job.blocks(), lengths.append)).words
    return formats.Recording(words, job.id, sum(lengths), {}, job.channel, job.speaker or "")
