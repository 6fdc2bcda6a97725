"""A training as one page to look at: asrkit report EXP"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from asrkit.atomic_write import write_text
from asrkit.cli.options import MODEL, add_batch, add_context, add_device, add_search
from asrkit.cli.parser import Parser, Target, whole
from asrkit.commands.evaluate import recognized
from asrkit.errors import UserError

if TYPE_CHECKING:
    from asrkit.data.manifest import LeftOut
    from asrkit.evaluation import Outcome
    from asrkit.model import Context
    from asrkit.model_file import ModelFile
    from asrkit.report.training import Experiment
    from asrkit.report.words import Recognized
    from asrkit.runtime import Recognizer


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit report", __doc__,
        "asrkit report exp/conformer\n"
        "  asrkit report exp/conformer --manifest data/digits/test.jsonl --chunk-ms 320",
    )  # fmt: skip
    add_context(arguments)
    add_search(arguments)
    arguments.add_argument("--manifest", help="recordings with texts (default: the training's dev)")
    arguments.add_argument(
        "--output",
        type=Target,
        help="page to write (default: EXP/report.html, or NAME.html here for a model)",
    )
    arguments.add_argument(
        "--worst", type=whole(0, 100_000), default=20,
        help="number of worst utterances (default 20)",
    )  # fmt: skip
    add_batch(arguments)
    add_device(arguments)
    arguments.add_argument("experiment", metavar="EXP", help=f"a training's output_dir, {MODEL}")
    return arguments.run(report, argv)


def report(options: argparse.Namespace) -> int:
    from asrkit.cli.recognizer import name_left_out
    from asrkit.data.inputs import read_distinct
    from asrkit.evaluation import scores
    from asrkit.evaluation.written import normalizer_of, rules_of
    from asrkit.report.page import page
    from asrkit.report.players import Players
    from asrkit.report.words import worst

    experiment, output = read_experiment(options.experiment)
    file = experiment.file
    recognizers, aligner, chunk = recognizers_of(options, file)
    written = normalizer_of(rules_of(file))
    manifest = options.manifest or file.config.data.dev
    if not Path(manifest).exists():
        raise UserError(f"no manifest {manifest} (from {Path.cwd()}); --manifest names another")
    left_out: list[LeftOut] = []
    outcomes = recognized(options, manifest, recognizers, left_out, aligner)
    status = name_left_out("asrkit report", left_out)
    results = scores(outcomes, written)
    texts = with_speakers([outcome[chunk] for outcome in outcomes], manifest)
    bad, play = worst(texts, options.worst), Players()
    wanted = {each.id for each in bad}
    recordings = {each.id: each for each in read_distinct(manifest, []) if each.id in wanted}
    corpus = described(manifest, texts)
    made = page(
        experiment, results, chunk, f"{corpus}: {decoding(options, file, aligner)}", texts,
        [(each, play(recordings[each.id].load())) for each in bad],
        f"asrkit report {options.experiment}",
    )  # fmt: skip
    path = Path(options.output or output)
    write_text(path, made, errors="replace")  # a lone surrogate in a transcript
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB", file=sys.stderr)
    return status


def read_experiment(named: str) -> tuple[Experiment, Path]:
    """Return a training's folder, or that of a lone model file, and the path of its page."""
    from asrkit.model_file import load_model, model_path
    from asrkit.report.training import Experiment
    from asrkit.runtime.threads import set_threads

    folder = Path(named)
    if folder.is_dir():
        path, name, output = folder / "model.safetensors", folder.resolve().name, "report.html"
    else:
        path = model_path(named)
        folder, name, output = Path(), path.stem, f"{path.stem}.html"
    file = load_model(path)
    set_threads(None, file.num_parameters)
    return Experiment(name, path, file), folder / output


def recognizers_of(
    options: argparse.Namespace, file: ModelFile
) -> tuple[dict[str, Recognizer], Recognizer, str]:
    """Return recognisers by name, the longest chunk first: one for each chunk of the training and
    the chosen one. Also return the one that aligns references, and the chosen one's name."""
    from asrkit.cli.recognizer import context_of, hotwords_of, lm_of, search_of
    from asrkit.model import FULL, FULL_CONTEXT
    from asrkit.runtime import recognizer_of

    chosen = recognizer_of(
        file, context_of(options, file), search_of(options, file), options.device, lm_of(options)
    ).with_hotwords(hotwords_of(options))
    context, around = file.config.context, context_of_chunks(options, file)
    chunks = {chosen.chunk_size, *context.chunk_sizes}
    if context.full_share > 0:
        chunks.add(FULL_CONTEXT)

    def at(chunk: int) -> Recognizer:
        seen = FULL if chunk == FULL_CONTEXT else around._replace(chunk_size=chunk)
        other = recognizer_of(file, seen, device=options.device)
        return other.with_search(chosen.search)  # so that a language model is read only once

    found = {each.context: each for each in map(at, sorted(chunks, reverse=True))}
    return found, at(FULL_CONTEXT), chosen.context


def context_of_chunks(options: argparse.Namespace, file: ModelFile) -> Context:
    """Return the context around the chunks: the chosen one, or the model's own if the chosen one
    is full context, which has none."""
    from asrkit.cli.recognizer import context_of

    chosen = context_of(options, file)
    return file.config.context.live if chosen.full else chosen


def decoding(options: argparse.Namespace, file: ModelFile, recognizer: Recognizer) -> str:
    """Describe the decoding of the recordings in words."""
    from asrkit.cli.recognizer import search_of

    left = context_of_chunks(options, file).left
    return (
        f"{search_of(options, file).kind.replace('_', ' ')} search, "
        f"{f'language model {options.lm}' if options.lm else 'no language model'}, "
        f"{f'hotwords {options.hotwords}, ' if options.hotwords else ''}"
        f"{left * recognizer.frame_ms} ms of left context"
    )


def with_speakers(outcomes: list[Outcome], manifest: str) -> list[Recognized]:
    """Return the recognised words with their speakers."""
    from asrkit.data.inputs import read_distinct
    from asrkit.report.words import Recognized, word_pairs

    speakers = {each.id: each.speaker for each in read_distinct(manifest, [])}
    return [
        Recognized(o.id, speakers[o.id], o.seconds, word_pairs(o.reference, o.text))
        for o in outcomes
    ]


def described(manifest: str, recognized: list[Recognized]) -> str:
    minutes = sum(each.seconds for each in recognized) / 60
    return f"{manifest} ({len(recognized)} utterances, {minutes:.1f} min)"
