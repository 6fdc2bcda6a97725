"""Error rates and delays at several chunk sizes: python -m asrkit.evaluate --model M dev.jsonl"""

import argparse
import json
from typing import Any

from asrkit.backends import milliseconds
from asrkit.commands.arguments import Target
from asrkit.commands.options import (
    MULTIPLE,
    add_batch,
    add_model,
    add_search,
    frames,
    hotwords_of,
    lm_of,
    parser,
    run_command,
    search_of,
)
from asrkit.evaluation.accuracy import Heard, WordAccuracy, word_accuracy
from asrkit.files import replacing
from asrkit.model import FULL_CONTEXT
from asrkit.model_file import ModelFile, load_model
from asrkit.runtime import Word, recognizer_of
from asrkit.runtime.load import known_device, on_device
from asrkit.runtime.results import WordReader
from asrkit.search import Hypothesis
from asrkit.text import Tokenizer
from asrkit.training.batches import held_out_manifest
from asrkit.training.validation import Outcome, Score, Validation, scores


def main(argv: list[str] | None = None) -> int:
    arguments = parser(
        "asrkit evaluate", __doc__,
        "python -m asrkit.evaluate --model exp/conformer/model.safetensors data/digits/test.jsonl\n"
        "  python -m asrkit.evaluate --model MODEL --chunk-ms full,640 --format json dev.jsonl",
    )  # fmt: skip
    add_model(arguments)
    arguments.add_argument(
        "--chunk-ms", default="full,640,320,160", help="default full,640,320,160"
    )
    arguments.add_argument(
        "--left-ms", help=f"left context in ms, {MULTIPLE} (default: the model's)"
    )
    add_search(arguments)
    arguments.add_argument("--format", choices=["text", "json"], default="text")
    arguments.add_argument("--output", type=Target, help="write there, not to standard output")
    add_batch(arguments)
    arguments.add_argument("manifest", help="recordings with their texts")
    return run_command(evaluate, arguments, argv)


def evaluate(options: argparse.Namespace) -> int:
    file = load_model(options.model)
    frame_ms = file.model.encoder.frame_ms
    left = frames("--left-ms", options.left_ms, frame_ms)
    left = file.config.context.left_context if left is None else left
    contexts = [context(name, left, frame_ms) for name in options.chunk_ms.split(",")]
    outcomes = outcomes_of(file, options, contexts)
    found, words = (
        scores(outcomes),
        accuracies(outcomes, file.tokenizer, milliseconds(file.model.encoder.factor)),
    )
    if options.format == "text":
        shown = table(found, words)
    else:
        shown = json.dumps(as_json(file, found, words), indent=1)
    if options.output is None:
        print(shown)
    else:
        with replacing(options.output) as temporary:
            temporary.write_text(f"{shown}\n", encoding="utf-8")
    return 0


def context(name: str, left_context: int, frame_ms: int) -> tuple[int, int]:
    """Chunk size and left context of "full" or of a number of milliseconds."""
    if name == "full":
        return FULL_CONTEXT, 0
    chunk_size = frames("--chunk-ms", name, frame_ms, 1)
    assert chunk_size is not None  # of no name alone
    return chunk_size, left_context


def outcomes_of(
    file: ModelFile, options: argparse.Namespace, contexts: list[tuple[int, int]]
) -> list[Outcome]:
    """What becomes of the manifest."""
    file = on_device(file, known_device(options.device))
    recognizer = recognizer_of(
        file, search=search_of(options, file), device=options.device, lm=lm_of(options)
    ).with_hotwords(hotwords_of(options))
    dev = held_out_manifest(options.manifest, file, options.batch_seconds)
    fbank, search = recognizer.engine.frontend, recognizer.search
    return list(Validation(file.model, fbank, file.tokenizer, search, dev, contexts).measure())


def accuracies(
    outcomes: list[Outcome], tokenizer: Tokenizer, frame_ms: int
) -> dict[str, WordAccuracy]:
    """How right the times and confidences of words are, by name of the chunk size."""

    def heard(outcome: Outcome, name: str) -> Heard:
        def words(hypothesis: Hypothesis) -> tuple[Word, ...]:
            return tuple(WordReader(tokenizer, frame_ms)(hypothesis, outcome.seconds))

        said = outcome.said and words(outcome.said)
        return Heard(words(outcome.heard[name]), outcome.reference.split(), said or ())

    names = outcomes[0].heard
    return {name: word_accuracy(heard(outcome, name) for outcome in outcomes) for name in names}


def as_json(
    file: ModelFile, found: dict[str, Score], words: dict[str, WordAccuracy]
) -> dict[str, Any]:
    """Everything that is known of the scores, with the errors of every utterance."""
    contexts = {}
    for name, score in found.items():
        rates = {"words": score.words, "characters": score.characters}
        contexts[name] = {
            **{unit: rate._asdict() | {"rate": rate.rate} for unit, rate in rates.items()},
            "interval": score.interval,
            "delay_ms": score.delay and score.delay._asdict(),
            "word_accuracy": words[name]._asdict(),
            "errors": {name: rate.errors for name, rate in score.each.items()},
        }
    return {"training": file.training, "contexts": contexts}


def table(found: dict[str, Score], accuracy: dict[str, WordAccuracy]) -> str:
    titles = ("WER", "95 %", "errors", "words", "CER", "delay ms", "median", "90 %", "last", "ECE")
    lines = [f"{'chunk':<9}" + "".join(f" {title:>9}" for title in titles)]
    for name, score in found.items():
        words, (low, high) = score.words, score.interval
        cells = [f"{words.rate:.2f} %", f"{low:.1f}–{high:.1f}", str(words.errors)]
        cells += [str(words.reference_units), f"{score.characters.rate:.2f} %"]
        cells += ["–" if ms is None else f"{ms:.0f}" for ms in score.delay or [None] * 4]
        cells += [f"{100 * accuracy[name].calibration_error:.1f} %"]
        lines.append(f"{name:<9}" + "".join(f" {cell:>9}" for cell in cells))
    return "\n".join(lines)
