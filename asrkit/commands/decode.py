"""Decode files or a manifest: asrkit decode --model MODEL a.wav b.mp3 …"""

from __future__ import annotations

import argparse
from collections.abc import Generator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from asrkit.cli.options import add_channel, add_model, add_output, add_recognizer, refuse_channel
from asrkit.cli.parser import Parser, complain, whole
from asrkit.errors import UserError, reason, shown

if TYPE_CHECKING:
    from asrkit.data.manifest import LeftOut
    from asrkit.data.recording import Recording
    from asrkit.runtime import Recognizer
    from asrkit.transcription.batches import Decoded
    from asrkit.transcription.journal import Journal
    from asrkit.transcription.output import Heard, Output


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit decode", __doc__,
        "asrkit decode --model exp/conformer/model.safetensors a.wav b.mp3\n"
        "  asrkit decode --model MODEL --manifest test.jsonl --chunk-ms 640",
        "--model MODEL [options] FILE … | --manifest MANIFEST",
    )  # fmt: skip
    add_model(arguments)
    arguments.add_argument("files", nargs="*", metavar="FILE", help="an audio file, or a folder")
    arguments.add_argument(
        "--manifest",
        help="manifest, or a folder of shards; with texts, WER and CER are printed too",
    )
    add_recognizer(arguments)
    add_channel(arguments, split=True)
    add_output(arguments, "txt")
    arguments.add_argument(
        "--workers", type=whole(1, 1024), metavar="N", default=1,
        help="processes that share the recordings (default 1)",
    )  # fmt: skip
    return arguments.run(decode, argv)


def decode(options: argparse.Namespace) -> int:
    from asrkit.cli.recognizer import load_recognizer
    from asrkit.data.inputs import jobs_of
    from asrkit.runtime.formats import calls
    from asrkit.transcription.output import Output, report

    if not options.files and not options.manifest:
        raise UserError("nothing to decode: name audio files, or a --manifest")
    left_out: list[LeftOut] = []
    if options.manifest:
        refuse_channel(options)
    jobs = jobs_of(options.files, options.manifest, left_out, options.channel, options.track)
    for line in left_out:
        complain("asrkit decode", line)
    if not jobs and not left_out:
        raise UserError(f"{options.manifest} has no utterances to decode")
    groups = calls(jobs)
    output = Output(options.format, options.output_dir, [group[0] for group in groups])
    recognizer = load_recognizer(options)
    heard = decode_all(options, recognizer, groups, output)
    report(jobs, heard, recognizer)
    return 1 if None in heard or left_out else 0


def decode_all(
    options: argparse.Namespace,
    recognizer: Recognizer,
    groups: list[list[Recording]],
    output: Output,
) -> list[Heard | None]:
    """Write the transcripts of all recordings that the output lacks.

    Args:
        groups: channels of each recording.

    Returns:
        The text of each channel, or None for an error.
    """
    from tqdm import tqdm

    from asrkit.transcription.batches import together

    journal = journal_of(options, recognizer, output)
    heard = [journal.find(group) if journal else () for group in groups]
    left = [number for number, found in enumerate(heard) if not found]
    if len(left) < len(groups):
        complain(
            "asrkit decode", f"{len(groups) - len(left)} of {len(groups)} recordings are in "
            f"{shown(Path(options.output_dir))} and are not decoded again",
        )  # fmt: skip
    bar = tqdm(total=sum(map(len, groups)), unit=" file", disable=None, leave=False)
    bar.update(sum(map(len, heard)))
    jobs = [job for number in left for job in groups[number]]
    sizes = [len(groups[number]) for number in left]
    with bar, closing(decoded(options, recognizer, jobs)) as found:
        for at, outcomes in together(found, sizes, in_order=options.output_dir is None):
            group = groups[left[at]]
            bar.update(len(group))
            with bar.external_write_mode():
                heard[left[at]] = show(group, outcomes, output)
            if journal:
                journal.add(group, heard[left[at]])
    return [each for channels in heard for each in channels]


def journal_of(
    options: argparse.Namespace, recognizer: Recognizer, output: Output
) -> Journal | None:
    """Return the journal of --output-dir; None without one, or if texts cannot be compared."""
    from asrkit.transcription.journal import Journal

    if output.folder is None:
        return None
    try:
        return Journal(output, recognizer.identity())
    except UserError as error:  # about a function for --postprocess
        complain("asrkit decode", f"everything is decoded again: {reason(error)}")
        return None


def decoded(
    options: argparse.Namespace, recognizer: Recognizer, jobs: list[Recording]
) -> Generator[Decoded]:
    """Yield the outcomes of jobs, by this process or by workers."""
    from asrkit.cli.recognizer import load_recognizer
    from asrkit.transcription.batches import outcomes
    from asrkit.transcription.workers import decode_in_parts

    if options.workers == 1:
        yield from outcomes(recognizer, jobs, options.batch_seconds)
        return
    load = partial(load_recognizer, options)
    yield from decode_in_parts(options.workers, load, jobs, options.batch_seconds)


def show(jobs: list[Recording], outcomes: list[Decoded], output: Output) -> Sequence[Heard | None]:
    """Write the transcript of a recording's channels; report errors on standard error.

    Returns:
        The text of each channel, or None for an error.
    """
    from asrkit.data.manifest import LeftOut
    from asrkit.runtime.words import sureness
    from asrkit.transcription.output import Heard, recording_of

    call, errors, heard = [], dict[str, None](), list[Heard | None]()
    for job, outcome in zip(jobs, outcomes, strict=True):
        result = outcome.result
        if isinstance(result, UserError):
            errors[str(LeftOut(job.id, str(result)))] = None
            heard.append(None)
        else:
            call.append(recording_of(job, result, outcome.seconds))
            heard.append(Heard(result.text, sureness(result.words)))
    for line in errors:  # one for all channels of a file that cannot be read
        complain("asrkit decode", line)
    if call:
        output.write(jobs[0], call)
    return heard
