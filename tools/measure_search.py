"""What a beam and each way of pruning it do to the word error rate, and what they cost.

The network hears every utterance once; each search then reads the same log-probabilities.
"""

import argparse
import sys
import time
from collections.abc import Iterator

import torch
from torch import Tensor

from asrkit.audio import Fbank, features
from asrkit.build import build_fusion, build_normalizer
from asrkit.checkpoint import ModelFile, load_model
from asrkit.cli import parser, run_command
from asrkit.config import SearchConfig, parse_language_model, parse_search
from asrkit.data.cuts import load_cuts
from asrkit.data.dataset import TextEncoder
from asrkit.model import FRAME_MS, FULL_CONTEXT
from asrkit.search import Search, build_search
from asrkit.text import bootstrap, decode, wer
from asrkit.training.loading import held_out
from asrkit.training.validation import frames_of

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


@torch.inference_mode()
def heard(file: ModelFile, manifest: str, chunk_size: int) -> Iterator[tuple[str, Tensor]]:
    """Each text with its (E, V) log-probabilities."""
    encode = TextEncoder(file.tokenizer, build_normalizer(file.config.text))
    left_context = 0 if chunk_size == FULL_CONTEXT else file.config.context.left_context
    fbank = Fbank(file.model.encoder.num_mels)
    for batch in held_out(load_cuts(manifest, []), encode, 60.0):
        feats, lengths = features(fbank, batch.samples, batch.num_samples)
        rows = frames_of(file.model, feats, lengths, chunk_size, left_context)
        yield from zip(batch.texts, rows, strict=True)


def measured(search: Search, said: list[tuple[str, Tensor]], file: ModelFile) -> str:
    """Error rate, its interval, and milliseconds of the CPU for a second of audio."""
    started = time.process_time()
    found = [search.best(search.step(search.start(), rows)).tokens for _, rows in said]
    ms = 1000 * (time.process_time() - started)
    audio = sum(len(rows) for _, rows in said) * FRAME_MS / 1000
    texts = [decode(file.tokenizer, tokens) for tokens in found]
    rates = [wer([text], [heard]) for (text, _), heard in zip(said, texts, strict=True)]
    low, high = bootstrap(rates)
    total = wer([text for text, _ in said], texts)
    return f"{total.rate:.2f} % | {low:.1f}-{high:.1f} | {ms / audio:.2f}"


def main(argv: list[str] | None = None) -> int:
    arguments = parser(
        "measure_search", __doc__,
        "python tools/measure_search.py --model small-en-alnum data/an4/dev.jsonl --lm lm.arpa",
    )  # fmt: skip
    arguments.add_argument("manifest")
    arguments.add_argument("--model", required=True)
    arguments.add_argument("--chunk-ms", type=int, help="default: full context")
    arguments.add_argument("--lm", help="n-gram model of words, for all but greedy")
    return run_command(measure, arguments, argv)


def measure(options: argparse.Namespace) -> int:
    torch.set_num_threads(1)
    file = load_model(options.model)
    chunk_size = options.chunk_ms // FRAME_MS if options.chunk_ms else FULL_CONTEXT
    said = list(heard(file, options.manifest, chunk_size))
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
