"""A training as one page to look at: asrkit report EXP"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from asrkit.atomic_write import write_text
from asrkit.cli.options import MODEL, add_device, add_recognizer
from asrkit.cli.parser import Parser, Target
from asrkit.commands.evaluate import recognized, recognizers_of
from asrkit.errors import UserError

if TYPE_CHECKING:
    from asrkit.data.manifest import LeftOut
    from asrkit.model_file import ModelFile


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit report", __doc__,
        "asrkit report exp/conformer\n"
        "  asrkit report exp/conformer --manifest data/digits/test.jsonl --chunk-ms 320,full",
    )  # fmt: skip
    add_recognizer(arguments, chunks="the own one of the model, then those of its training")
    arguments.add_argument("--manifest", help="recordings with texts (default: the training's dev)")
    arguments.add_argument(
        "--output",
        type=Target,
        help="page to write (default: EXP/report.html, or NAME.html here for a model)",
    )
    add_device(arguments)
    arguments.add_argument("experiment", metavar="EXP", help=f"a training's output_dir, {MODEL}")
    return arguments.run(report, argv)


WORST = 20  # utterances that the page shows with their audio


def report(options: argparse.Namespace) -> int:
    from asrkit.cli.recognizer import name_left_out, search_of
    from asrkit.data.inputs import read_distinct
    from asrkit.evaluation import scores
    from asrkit.evaluation.written import normalizer_of, rules_of
    from asrkit.model_file import load_model
    from asrkit.model_path import model_path
    from asrkit.report.page import page
    from asrkit.report.players import players
    from asrkit.report.words import Recognized, word_pairs, worst

    folder = Path(options.experiment)
    path = folder / "model.safetensors" if folder.is_dir() else model_path(options.experiment)
    name = folder.resolve().name if folder.is_dir() else path.stem
    output = folder / "report.html" if folder.is_dir() else Path(f"{name}.html")
    file = load_model(path)
    options.chunk_ms = options.chunk_ms or chunks_of(file)
    recognizers, aligner = recognizers_of(options, file.runnable)
    chunk = next(iter(recognizers))
    manifest = options.manifest or file.config.data.dev
    if not Path(manifest).exists():
        raise UserError(f"no manifest {manifest} (from {Path.cwd()}); --manifest names another")
    left_out: list[LeftOut] = []
    outcomes = recognized(options, manifest, recognizers, left_out, aligner)
    status = name_left_out("asrkit report", left_out)
    results = scores(outcomes, normalizer_of(rules_of(file)))
    recordings = {each.id: each for each in read_distinct(manifest)}
    found = (outcome[chunk] for outcome in outcomes)
    texts = [
        Recognized(o.id, recordings[o.id].speaker, o.seconds, word_pairs(o.reference, o.text))
        for o in found
    ]
    minutes, shown = sum(each.seconds for each in texts) / 60, worst(texts, WORST)
    made = page(
        name, file, results, chunk,
        f"{manifest} ({len(texts)} utterances, {minutes:.1f} min), "
        f"{search_of(options, file.runnable).kind.replace('_', ' ')} search"
        f"{f' with {options.lm}' if options.lm else ''}", texts,
        [*zip(shown, players(recordings[each.id].load() for each in shown), strict=True)],
        f"asrkit report {options.experiment}",
    )  # fmt: skip
    output = Path(options.output or output)
    write_text(output, made, errors="replace")  # a lone surrogate in a transcript
    print(f"{output}: {output.stat().st_size / 1e6:.1f} MB", file=sys.stderr)
    return status


def chunks_of(file: ModelFile) -> str:
    """Return the model's own chunk and those of its training, for --chunk-ms."""
    context, frame_ms = file.config.context, file.model.encoder.rate.frame_ms
    sizes = [] if context.live.full else [context.live.chunk_size]
    names = [str(size * frame_ms) for size in [*sizes, *sorted(context.chunk_sizes, reverse=True)]]
    names.insert(0 if context.live.full else len(names), "full")
    return ",".join(dict.fromkeys(names))
