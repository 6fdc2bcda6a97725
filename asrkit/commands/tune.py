"""How far to trust a language model: python -m asrkit.tune --model M --lm lm.arpa dev.jsonl

The network hears every utterance once. Then pairs of a weight and a bonus are tried: from one to
the best of its neighbours, and in finer steps when none is better.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

from asrkit.build import build_fusion
from asrkit.commands.options import (
    add_batch,
    add_context,
    add_model,
    add_search,
    context_of,
    hotwords_of,
    lm_of,
    parser,
    run_command,
    search_of,
)
from asrkit.data.dataset import Batch
from asrkit.errors import UserError
from asrkit.evaluation.wer import ErrorRate, Interval, bootstrap, wer
from asrkit.lm import LIMIT, read_language_model
from asrkit.model import ConformerCTC
from asrkit.model_file import load_model
from asrkit.runtime import Recognizer, recognizer_of
from asrkit.runtime.load import known_device, on_device
from asrkit.search import Fusion, Search, plus, takes_fusion
from asrkit.text import Tokenizer, decode
from asrkit.training.batches import held_out_manifest
from asrkit.training.validation import frames_of, with_features

Said = list[tuple[str, Tensor]]  # texts with their (E, V) log-probabilities


class Pair(NamedTuple):
    weight: float
    bonus: float


STEPS = (Pair(0.2, 0.5), Pair(0.1, 0.25))


def main(argv: list[str] | None = None) -> int:
    arguments = parser(
        "asrkit tune", __doc__,
        "python -m asrkit.tune --model MODEL --lm lm.arpa data/an4/dev.jsonl\n"
        "  python -m asrkit.tune --model MODEL --lm t.arpa --lm-units tokens --beam 20 dev.jsonl",
    )  # fmt: skip
    add_model(arguments)
    add_context(arguments)
    add_search(arguments)
    add_batch(arguments)
    arguments.add_argument("manifest", help="recordings with their texts, none of them trained on")
    return run_command(tune, arguments, argv)


def tune(options: argparse.Namespace) -> int:
    file, lm = load_model(options.model), lm_of(options)
    if lm is None:
        raise UserError("there is no language model to tune: --lm FILE")
    if options.search is None and not takes_fusion(file.config.search.kind):
        options.search = "prefix_beam"
    searching, model = search_of(options, file), read_language_model(lm.path)

    def fusion(pair: Pair) -> Fusion:
        chosen = lm.model_copy(update={"weight": pair.weight, "word_bonus": pair.bonus})
        return build_fusion(chosen, searching, file.tokenizer, model)

    start = Pair(lm.weight, lm.word_bonus)
    fusion(start)  # what does not fit is refused before anything is heard
    file = on_device(file, known_device(options.device))
    recognizer = recognizer_of(file, *context_of(options, file), searching)
    recognizer = recognizer.with_hotwords(hotwords_of(options))
    batches = held_out_manifest(options.manifest, file, options.batch_seconds)
    if not (said := list(heard(recognizer, file.model, batches))):
        raise UserError(f"{options.manifest}: no utterance could be read")

    def errors(name: str, search: Search) -> int:
        rate, (low, high) = score(said, texts_of(search, said, file.tokenizer))
        print(f"{name:<16} {rate.rate:6.2f} %  {low:.1f}–{high:.1f}", flush=True)
        return rate.errors

    @cache
    def errors_with(pair: Pair) -> int:
        name = f"{pair.weight:<8g} {pair.bonus:<7g}"
        return errors(name, plus(recognizer.search, fusion(pair)))

    print(f"{'weight':<8} {'bonus':<7} {'WER':>8}  95 %")
    without = errors("without", recognizer.search)
    best = climb(errors_with, start)
    if errors_with(best) < without:
        print(f"best: --lm-weight {best.weight:g} --word-bonus {best.bonus:g}")
    else:
        print("none of these is better than no language model")
    return 0


@torch.inference_mode()
def heard(
    recognizer: Recognizer, model: ConformerCTC, batches: Iterable[Batch]
) -> Iterator[tuple[str, Tensor]]:
    """Each text with its (E, V) log-probabilities."""
    context = recognizer.chunk_size, recognizer.left_context
    for batch, feats, lengths in with_features(model, recognizer.engine.frontend, batches):
        yield from zip(batch.texts, frames_of(model, feats, lengths, *context), strict=True)


def texts_of(search: Search, said: Said, tokenizer: Tokenizer) -> list[str]:
    """What is heard."""
    return [
        decode(tokenizer, search.best(search.step(search.start(), rows)).tokens)
        for _, rows in tqdm(said, "searching", leave=False, disable=None)
    ]


def score(said: Said, texts: list[str]) -> tuple[ErrorRate, Interval]:
    """The error rate of what is heard, and its interval."""
    references = [text for text, _ in said]
    each = [wer([text], [heard]) for text, heard in zip(references, texts, strict=True)]
    return wer(references, texts), bootstrap(each)


def climb(errors: Callable[[Pair], int], best: Pair) -> Pair:
    """The pair that no neighbour is better than."""
    for step in STEPS:
        while errors(best) > errors(better := min(neighbours(best, step), key=errors)):
            best = better
    return best


def neighbours(pair: Pair, step: Pair) -> Iterator[Pair]:
    """The eight around a pair, as far as they are in range."""
    for up, right in product((-1, 0, 1), repeat=2):
        weight = round(pair.weight + up * step.weight, 3)
        bonus = round(pair.bonus + right * step.bonus, 3)
        if (up or right) and 0.0 < weight <= LIMIT and abs(bonus) <= LIMIT:
            yield Pair(weight, bonus)
