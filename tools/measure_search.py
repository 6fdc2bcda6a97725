"""What a beam and each way of pruning it do to the word error rate, and what they cost.

The network hears every utterance once; each search then reads the same log-probabilities.
"""

import argparse
import sys
import time
from collections.abc import Iterator

import torch

from asrkit.build import build_fusion
from asrkit.commands.options import (
    add_batch,
    add_context,
    add_model_file,
    context_of,
    parser,
    run_command,
)
from asrkit.commands.tune import Said, heard, score, texts_of
from asrkit.config import SearchConfig, parse_language_model, parse_search
from asrkit.model_file import ModelFile, load_model
from asrkit.runtime import recognizer_of
from asrkit.search import Search, build_search
from asrkit.training.batches import held_out_manifest

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


def measured(search: Search, said: Said, file: ModelFile) -> str:
    """Error rate, its interval, and milliseconds of the CPU for a second of audio."""
    started = time.process_time()
    texts = texts_of(search, said, file.tokenizer)
    ms = 1000 * (time.process_time() - started)
    rate, (low, high) = score(said, texts)
    audio = sum(len(rows) for _, rows in said) * file.model.encoder.frame_ms / 1000
    return f"{rate.rate:.2f} % | {low:.1f}-{high:.1f} | {ms / audio:.2f}"


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
    recognizer = recognizer_of(file, *context_of(options, file))
    batches = held_out_manifest(options.manifest, file, options.batch_seconds)
    said = list(heard(recognizer, file.model, batches))
    print("| search | WER | 95 % | ms of CPU for a second of audio |\n|---|---|---|---|")
    for name, config in searches():
        fusion = None
        if options.lm and config.kind != "greedy":
            fusion = build_fusion(parse_language_model(options.lm), config, file.tokenizer)
        search = build_search(config.model_dump(), fusion)
        print(f"| {name} | {measured(search, said, file)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
