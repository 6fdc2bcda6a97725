"""How far to trust a language model: python -m asrkit.tune --model M --lm lm.arpa dev.jsonl

The network works on every utterance once. Then pairs of a weight and a bonus are tried: from one to
the best of its neighbours, and in finer steps when none is better.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

from torch import Tensor
from tqdm import tqdm

from asrkit.build import build_fusion, build_normalizer
from asrkit.cli.recognizer import (
    context_of,
    hotwords_of,
    lm_of,
    name_left_out,
    search_of,
    threads_for,
)
from asrkit.data.manifest import LeftOut
from asrkit.errors import UserError
from asrkit.evaluation import Outcome, ReferenceRecording
from asrkit.evaluation.outcomes import traced
from asrkit.evaluation.scoring import score_of
from asrkit.evaluation.testset import read_batches
from asrkit.evaluation.wer import interval_shown
from asrkit.extras import need
from asrkit.lm import LIMIT
from asrkit.model_file import load_model
from asrkit.runtime import Recognizer, recognizer_of
from asrkit.search import Fusion, GreedySearch, Search, plus, takes_fusion

Known = Sequence[
    tuple[ReferenceRecording, Tensor]
]  # utterances with their (E, V) log-probabilities


class Pair(NamedTuple):
    weight: float
    bonus: float


STEPS = (Pair(0.2, 0.5), Pair(0.1, 0.25))


def tune(options: argparse.Namespace) -> int:
    need("jiwer")
    file, lm = load_model(options.model), lm_of(options)
    threads_for(options, file)
    if lm is None:
        raise UserError("there is no language model to tune: --lm FILE")
    if options.search is None and not takes_fusion(file.config.search.kind):
        options.search = "prefix_beam"
    searching, start = search_of(options, file), Pair(lm.weight, lm.word_bonus)
    # Words that do not fit are refused or reported before the network works.
    model = build_fusion(lm, searching, file.tokenizer).weighted.model

    def fusion(pair: Pair) -> Fusion:
        chosen = lm.model_copy(update={"weight": pair.weight, "word_bonus": pair.bonus})
        return build_fusion(chosen, searching, file.tokenizer, model)

    recognizer = recognizer_of(file, context_of(options, file), searching, options.device)
    recognizer = recognizer.with_hotwords(hotwords_of(options))
    left_out: list[LeftOut] = []
    normalize = build_normalizer(file.config.text)
    batches = read_batches(options.manifest, normalize, options.batch_seconds, left_out)
    known = list(log_probs(recognizer, batches))
    status = name_left_out("asrkit tune", left_out)
    if not known:
        raise UserError(f"{options.manifest}: no utterance could be read")

    def errors(name: str, search: Search) -> int:
        score = score_of(read(recognizer.with_search(search), known))
        if score.words.rate is None:
            raise UserError(
                f"{options.manifest}: there is nothing to tune on, its texts hold no words"
            )
        between = interval_shown(score.interval)
        print(f"{name:<16} {score.words.percent:>8}  {between}", flush=True)
        return score.words.errors

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
    return status


def log_probs(
    recognizer: Recognizer, batches: Iterable[Sequence[ReferenceRecording]]
) -> Iterator[tuple[ReferenceRecording, Tensor]]:
    """Each utterance with its (E, V): the network works on it once, for all searches."""
    quick = recognizer.with_search(GreedySearch())
    for batch in batches:
        for utterance, (_, trace) in zip(batch, traced(quick, batch), strict=True):
            yield utterance, trace.frames


def read(recognizer: Recognizer, known: Known) -> list[Outcome]:
    """What a recogniser reads from the log-probabilities of each utterance."""
    return [
        Outcome(
            utterance.id, utterance.seconds, recognizer.rewrite(utterance.reference),
            recognizer.read(rows, len(utterance.samples)), recognizer.frame_ms,
        )
        for utterance, rows in tqdm(known, "searching", leave=False, disable=None)
    ]  # fmt: skip


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
