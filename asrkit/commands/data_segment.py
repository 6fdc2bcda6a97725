"""Divide a long recording with its text: asrkit data segment talk.mp3 talk.txt --model M"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asrkit.atomic_write import write_text
from asrkit.cli.options import add_channel, add_context, add_model
from asrkit.cli.parser import Parser, Target, complain, real
from asrkit.cli.progress import bar
from asrkit.errors import UserError, shown
from asrkit.extras import need

if TYPE_CHECKING:
    from asrkit.transcription.segmentation import Piece


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit data segment", __doc__,
        "asrkit data segment book.mp3 book.txt --model MODEL --output book.jsonl\n\n"
        "exit status: 0 all of the text was found, 1 some was left out, 2 nothing was written",
    )  # fmt: skip
    add_model(arguments)
    add_context(arguments)
    arguments.add_argument("file", help="an audio file")
    arguments.add_argument("text", metavar="TEXT", help="its text: a text file, .srt or .vtt")
    arguments.add_argument("--output", required=True, type=Target, metavar="FILE", help="manifest")
    arguments.add_argument("--speaker", help="name of the speaker, for the manifest")
    arguments.add_argument(
        "--min-score", type=real(0.0, 1.0), default=0.1, metavar="P",
        help="lowest score, of a piece's worst word; other pieces are left out (default 0.1)",
    )  # fmt: skip
    add_channel(arguments)
    return arguments.run(segment, argv)


SUBTITLES = (".srt", ".vtt")
LONGEST_TEXT = 10_000_000  # bytes: 200 hours of speech


def segment(options: argparse.Namespace) -> int:
    from asrkit.cli.recognizer import load_plain
    from asrkit.data.corpora.cues import read_cues
    from asrkit.data.corpora.source import lines_of
    from asrkit.data.inputs import file_of
    from asrkit.evaluation.wer import without_errors
    from asrkit.text.graphemes import in_one_line, units
    from asrkit.transcription.segmentation import Options, pieces_of

    need("rapidfuzz")
    source = Path(options.text)
    if source.suffix.lower() in SUBTITLES:
        text = "\n".join(cue.text for cue in read_cues(source))
    else:
        text = "\n".join(line for _, line in lines_of(source, LONGEST_TEXT))
    if not text.strip():
        raise UserError(f"{shown(source)} has no text")
    recognizer = load_plain(options)
    job = file_of(options.file, text=text, channel=options.channel, track=options.track)
    pieces = pieces_of(recognizer, job, recognizer.normalizer, Options(least=options.min_score))
    found = [*bar(pieces, "aligning", "piece")]
    left_out = [each for each in found if each.problem or each.score < options.min_score]
    kept = [each for each in found if not each.problem and each.score >= options.min_score]
    beside = Path(options.output).with_suffix(".left_out.jsonl")
    write(options, Path(options.output), kept)
    write(options, beside, left_out)
    seconds = sum(each.end - each.start for each in kept)
    total = without_errors(units(in_one_line(text)))
    count = sum(len(units(each.text)) for each in kept)
    name = f"{total.unit}s"
    print(f"{options.output}: {len(kept)} pieces, {count} {name}, {seconds / 60:.1f} min")
    if not left_out:
        return 0
    lacking = f"{total.reference_units - count} of {total.reference_units} {name}"
    complain("asrkit data segment", f"left out {len(left_out)} pieces with {lacking}, see {beside}")
    return 1


def write(options: argparse.Namespace, path: Path, pieces: list[Piece]) -> None:
    """Write a manifest of pieces; those that are left out have their problem."""
    from asrkit.data.splits import from_folder

    audio = from_folder(str(Path(options.file).absolute()), path.absolute().parent)
    name, rows = Path(options.file).stem, list[dict[str, Any]]()
    for piece in pieces:
        row: dict[str, Any] = {
            "id": f"{name}-{round(1000 * piece.start):09}",
            "audio": audio,
            "start": round(piece.start, 3),
            "duration": round(piece.end - piece.start, 3),
            "text": piece.text,
            "score": round(piece.score, 4),
        }
        extra = {
            "speaker": options.speaker, "channel": options.channel, "track": options.track,
            "problem": piece.problem,
        }  # fmt: skip
        rows.append(row | {key: value for key, value in extra.items() if value not in (None, "")})
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
