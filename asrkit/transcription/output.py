"""Writers of transcripts, to standard output or to files, and of their error rates."""

import hashlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from asrkit.atomic_write import refuse_file, replacing
from asrkit.data.inputs import as_text
from asrkit.data.recording import Recording
from asrkit.errors import UserError, printable
from asrkit.evaluation.wer import cer, wer
from asrkit.registry import refusal
from asrkit.runtime import Recognizer, Result, formats
from asrkit.runtime.formats import FORMATS, Call, write
from asrkit.runtime.words import far_from_model

LONGEST_NAME = 200  # bytes: file systems allow 255, including the suffix and `replacing`'s prefix


class Heard(NamedTuple):
    """The text of a recording's channel, and how sure it is."""

    text: str
    sureness: float | None


def file_name(job: Recording) -> str:
    """Return the name of a recording's output file without suffix; shorten and hash long names."""
    path = as_text(job.audio)
    name = job.id
    if name.startswith(path):
        name = Path(path).stem + name.removeprefix(path)
    name = re.sub(r"[/\\\x00-\x1f\x7f]", "_", name)
    if len(name.encode()) <= LONGEST_NAME:
        return name
    digest = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
    return name.encode()[: LONGEST_NAME - 9].decode(errors="ignore") + "-" + digest


class Output:
    """A writer of transcripts, to standard output or to one file per recording."""

    def __init__(self, form: str, folder: str | None, jobs: Sequence[Recording]) -> None:
        if form not in FORMATS:
            raise UserError(f"--format {refusal(form, FORMATS)}")
        self.form, self.several = form, len(jobs) > 1
        self.folder = None if folder is None else Path(folder)
        if self.folder is None:
            if self.several and not FORMATS[form].joins:
                raise UserError(
                    f"a {form} file has only one recording, got {len(jobs)}: use --output-dir DIR "
                    "for a file per recording"
                )
            return
        refuse_file("--output-dir", self.folder)
        first: dict[str, Recording] = {}
        for job in jobs:
            other = first.setdefault(file_name(job), job)
            if other is not job:
                raise UserError(
                    f"{other.id} and {job.id} would have the same file {self.path(job)}: decode "
                    "them into different folders"
                )

    def path(self, job: Recording) -> Path:
        return (self.folder or Path()) / f"{file_name(job)}.{self.form}"

    def write(self, job: Recording, call: Call) -> None:
        if self.folder is not None:
            with replacing(self.path(job)) as temporary:
                temporary.write_text(write(self.form, call), encoding="utf-8")
            return
        shown = FORMATS[self.form].write(call)
        if self.form == "txt" and self.several:
            shown = "".join(f"{printable(job.id)}\t{line}\n" for line in shown[:-1].split("\n"))
        print(shown, end="", flush=True)


def recording_of(job: Recording, result: Result, seconds: float) -> formats.Recording:
    """Return the output for a result of `seconds` seconds of audio."""
    more: dict[str, Any] = {} if job.text is None else {"reference": job.text}
    if len(result.segments) > 1:
        more["segments"] = [
            {"text": each.text, "start": each.spoken, "end": each.spoken_end,
             "context": each.context}
            for each in result.segments
        ]  # fmt: skip
    return formats.Recording(result.words, job.id, seconds, more, job.channel, job.speaker or "")


def report(
    jobs: Sequence[Recording], heard: Sequence[Heard | None], recognizer: Recognizer
) -> None:
    """Print error rates of the recordings that have a reference, on standard error.

    Texts far from the model are reported as well.

    Args:
        heard: text of each recording; None for an error.
    """
    found = [each for each in heard if each is not None]
    if doubt := far_from_model([each.sureness for each in found]):
        print(f"asrkit decode: {doubt}", file=sys.stderr)
    references, hypotheses, failed, textless = [], [], 0, 0
    for job, each in zip(jobs, heard, strict=True):
        if job.text is not None and each is not None:
            references.append(recognizer.rewrite(recognizer.normalizer(job.text)))
            hypotheses.append(each.text)
        failed += job.text is not None and each is None
        textless += job.text is None and each is not None
    if not references:
        return
    without = f" without {failed} that could not be decoded" if failed else ""
    without += f" without {textless} lacking a text" if textless else ""
    first = wer(references, hypotheses)
    for rate in (first, cer(references, hypotheses))[: 1 + (first.name != "CER")]:
        print(f"{rate.name} {rate}{without}", file=sys.stderr)
