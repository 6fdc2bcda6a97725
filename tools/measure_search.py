"""What a beam and each way of pruning it do to the word error rate, and what they cost.

The network works on every utterance once; each search then reads the same log-probabilities.
"""

import argparse
import sys
import time
from collections.abc import Iterator

import torch

from asrkit.build import build_fusion, build_normalizer
from asrkit.cli.options import add_batch, add_context, add_model_file, parser
from asrkit.cli.recognizer import context_of, name_left_out
from asrkit.cli.run import run_command
from asrkit.commands.tune import Known, log_probs, read
from asrkit.config import SearchConfig, parse_language_model, parse_search
from asrkit.data.manifest import LeftOut
from asrkit.evaluation.scoring import score_of
from asrkit.evaluation.testset import read_batches
from asrkit.evaluation.wer import interval_shown
from asrkit.model_file import load_model
from asrkit.runtime import Recognizer, recognizer_of
from asrkit.search import build_search

BEAMS = (1, 2, 5, 10, 20, 50)
TOKENS = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)
BLANKS = (1.0, 0.9999, 0.999, 0.99, 0.95)
NOT_PRUNED = {"kind": "prefix_beam", "beam": 10, "min_token_prob": 0.0, "skip_blank_prob": 1.0}


def searches() -> Iterator[tuple[str, SearchConfig]]:
    """What is measured, by name."""
    yield "greedy", parse_search("greedy")
    yield "prefix_beam", parse_search("prefix_beam")
    for option, values in (
        ("beam", BEAMS),
        ("min_token_prob", TOKENS),
        ("skip_blank_prob", BLANKS),
    ):
        for value in values:
            yield f"{option} {value:g}, else not pruned", parse_search(NOT_PRUNED | {option: value})


def measured(recognizer: Recognizer, known: Known) -> str:
    """Error rate, its interval, and milliseconds of the CPU for a second of audio."""
    started = time.process_time()
    outcomes = read(recognizer, known)
    ms = 1000 * (time.process_time() - started)
    score, audio = score_of(outcomes), sum(outcome.seconds for outcome in outcomes)
    return f"{score.words.percent} | {interval_shown(score.interval)} | {ms / audio:.2f}"


def main(argv: list[str] | None = None) -> int:
    arguments = parser(
        "measure_search", __doc__,
        "python tools/measure_search.py --model small-en-alnum data/an4/dev.jsonl --lm lm.arpa",
    )  # fmt: skip
    arguments.add_argument("manifest")
    add_model_file(arguments)
    add_context(arguments, "full")
    add_batch(arguments)
    arguments.add_argument("--lm", help="n-gram model of words, for all but greedy")
    return run_command(measure, arguments, argv)


def measure(options: argparse.Namespace) -> int:
    torch.set_num_threads(1)
    file = load_model(options.model)
    recognizer = recognizer_of(file, context_of(options, file))
    left_out: list[LeftOut] = []
    normalize = build_normalizer(file.config.text)
    batches = read_batches(options.manifest, normalize, options.batch_seconds, left_out)
    known = list(log_probs(recognizer, batches))
    status = name_left_out("measure_search", left_out)
    print("| search | WER | 95 % | ms of CPU for a second of audio |\n|---|---|---|---|")
    for name, config in searches():
        fusion = None
        if options.lm and config.kind != "greedy":
            fusion = build_fusion(parse_language_model(options.lm), config, file.tokenizer)
        search = build_search(config.model_dump(), fusion)
        print(f"| {name} | {measured(recognizer.with_search(search), known)} |", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
