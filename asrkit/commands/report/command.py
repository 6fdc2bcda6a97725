"""A training as one page to look at: python -m asrkit.report EXP"""

import argparse
import sys
from pathlib import Path

from lhotse import CutSet
from tqdm import tqdm

from asrkit.build import build_normalizer
from asrkit.commands.arguments import Target, whole
from asrkit.commands.options import (
    MODEL,
    add_batch,
    add_context,
    add_search,
    frames,
    parser,
    recognizer_as,
    run_command,
    search_of,
)
from asrkit.commands.report.events import read_scalars
from asrkit.commands.report.examples import example_of
from asrkit.commands.report.markup import Html, page, tag
from asrkit.commands.report.recognition import (
    confusions_section,
    examples_section,
    groups_section,
    spread,
    worst,
    worst_section,
)
from asrkit.commands.report.recordings import Players
from asrkit.commands.report.training import Experiment, curves_section, scores_section, tiles
from asrkit.commands.report.words import Recognized, word_pairs
from asrkit.config import ContextConfig
from asrkit.data.cuts import load_cuts
from asrkit.data.dataset import TextEncoder, load_samples
from asrkit.data.manifest import LeftOut
from asrkit.errors import UserError
from asrkit.files import replacing
from asrkit.model import FULL_CONTEXT, ConformerCTC
from asrkit.model_file import ModelFile, load_model, model_path
from asrkit.runtime import Recognizer
from asrkit.runtime.load import known_device, on_device
from asrkit.training.batches import held_out
from asrkit.training.validation import Outcome, Validation, chunk_name, scores

PARTS = {
    "scores": "Scores", "curves": "Curves", "examples": "Alignments", "worst": "Worst utterances",
    "confusions": "Confusions", "groups": "Duration and speaker",
}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    arguments = parser(
        "asrkit report", __doc__,
        "python -m asrkit.report exp/conformer\n"
        "  python -m asrkit.report exp/conformer --manifest data/digits/test.jsonl --chunk-ms 320",
    )  # fmt: skip
    add_context(arguments)
    add_search(arguments)
    arguments.add_argument("--manifest", help="recordings with texts (default: the training's dev)")
    arguments.add_argument(
        "--output",
        type=Target,
        help="the page (default: EXP/report.html, or NAME.html here for a model)",
    )
    arguments.add_argument(
        "--examples", type=whole(0, 1000), default=4, help="alignments shown (default 4)"
    )
    arguments.add_argument(
        "--worst", type=whole(0, 100_000), default=20, help="utterances shown (default 20)"
    )
    add_batch(arguments)
    arguments.add_argument("--device", default="cpu", help="of torch: cpu, cuda, … (default cpu)")
    arguments.add_argument("experiment", metavar="EXP", help=f"a training's output_dir, {MODEL}")
    return run_command(report, arguments, argv)


def report(options: argparse.Namespace) -> int:
    experiment, output = read_experiment(options.experiment)
    file = on_device(experiment.file, known_device(options.device))
    recognizer = recognizer_as(options, file)
    cuts = read_cuts(options.manifest or file.config.data.dev)
    encode = TextEncoder(
        file.tokenizer, build_normalizer(file.config.text), file.model.encoder.factor
    )
    contexts = menu(file.config.context, recognizer.chunk_size, left_context(options, file))
    heard = recognized(file.model, recognizer, encode, cuts, contexts, options.batch_seconds)
    results, chunk = scores(heard), chunk_name(recognizer.chunk_size)
    aligned = with_speakers(heard, chunk, cuts)
    chosen, bad = spread(aligned, options.examples), worst(aligned, options.worst)
    wanted = {each.id for each in chosen + bad}
    cut_of = {cut.id: cut for cut in cuts if cut.id in wanted}
    examples = [
        example_of(cut_of[each.id], file.model, recognizer, encode.normalize) for each in chosen
    ]
    play = Players()
    corpus = described(options.manifest or file.config.data.dev, heard)
    decoding = (
        f"{search_of(options, file).kind.replace('_', ' ')} search, "
        f"{f'language model {options.lm}' if options.lm else 'no language model'}, "
        f"{f'hotwords {options.hotwords}, ' if options.hotwords else ''}"
        f"{left_context(options, file) * file.model.encoder.frame_ms} ms of left context"
    )
    made = page(
        f"{experiment.name} – asrkit report",
        heading(experiment.name),
        tiles(results, chunk, experiment),
        scores_section(results, f"{corpus}: {decoding}", experiment),
        curves_section(experiment),
        examples_section(chosen, examples, play, chunk),
        worst_section(bad, lambda name: play(load_samples(cut_of[name])), chunk),
        confusions_section(aligned, chunk),
        groups_section(aligned, chunk),
        tag("footer", f"Made by python -m asrkit.report {options.experiment}"),
    )
    return write(Path(options.output or output), made)


def read_experiment(named: str) -> tuple[Experiment, Path]:
    """A training's folder, or a model file alone; and where its page goes."""
    folder = Path(named)
    if folder.is_dir():
        path, name, output = folder / "model.safetensors", folder.resolve().name, "report.html"
    else:
        path = model_path(named)
        folder, name, output = Path(), path.stem, f"{path.stem}.html"
    scalars = read_scalars(path.parent / "tensorboard")
    return Experiment(name, path, load_model(path), scalars), folder / output


def left_context(options: argparse.Namespace, file: ModelFile) -> int:
    asked = frames("--left-ms", options.left_ms, file.model.encoder.frame_ms)
    return file.config.context.left_context if asked is None else asked


def read_cuts(path: str) -> CutSet:
    """The manifest's utterances; what cannot be read is named and left out."""
    if not Path(path).exists():
        raise UserError(f"no manifest {path} (from {Path.cwd()}); --manifest names another")
    left_out: list[LeftOut] = []
    cuts = load_cuts(path, left_out)
    for utterance in left_out:
        print(f"asrkit report: left out {utterance}", file=sys.stderr)
    return cuts


def menu(context: ContextConfig, chunk_size: int, left: int) -> list[tuple[int, int]]:
    """What to score: what the model was trained at and the chosen chunk, the longest first."""
    chunks = {chunk_size, *context.chunk_sizes}
    if context.full_share > 0:
        chunks.add(FULL_CONTEXT)
    return [(chunk, 0 if chunk == FULL_CONTEXT else left) for chunk in sorted(chunks, reverse=True)]


def recognized(
    model: ConformerCTC, recognizer: Recognizer, encode: TextEncoder, cuts: CutSet,
    contexts: list[tuple[int, int]], batch_seconds: float,
) -> list[Outcome]:  # fmt: skip
    """Every utterance in every context."""
    dev = held_out(cuts, encode, batch_seconds)
    fbank, search = recognizer.engine.frontend, recognizer.search
    each = Validation(model, fbank, encode.tokenizer, search, dev, contexts).measure()
    total = None if cuts.is_lazy else len(cuts)
    return list(tqdm(each, "recognising", total, unit=" utterance", disable=None, leave=False))


def with_speakers(heard: list[Outcome], chunk: str, cuts: CutSet) -> list[Recognized]:
    """What was recognised at one chunk size, word by word."""
    speakers = {c.id: c.supervisions[0].speaker if c.supervisions else None for c in cuts}
    return [
        Recognized(o.id, speakers[o.id], o.seconds, word_pairs(o.reference, o.texts[chunk]))
        for o in heard
    ]


def described(manifest: str, heard: list[Outcome]) -> str:
    minutes = sum(outcome.seconds for outcome in heard) / 60
    return f"{manifest} ({len(heard)} utterances, {minutes:.1f} min)"


def heading(name: str) -> Html:
    links = (tag("a", title, href=f"#{part}") for part, title in PARTS.items())
    return tag("header", tag("h1", name), tag("nav", *links))


def write(path: Path, made: str) -> int:
    with replacing(path) as temporary:  # "replace": a lone surrogate in a transcript
        temporary.write_text(made, encoding="utf-8", errors="replace")
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB", file=sys.stderr)
    return 0
