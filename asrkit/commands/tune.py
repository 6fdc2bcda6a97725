"""Find the weight of a language model: asrkit tune --model M --lm lm.arpa dev.jsonl"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

from asrkit.cli.options import add_batch, add_context, add_model, add_search
from asrkit.cli.parser import Parser
from asrkit.cli.progress import bar
from asrkit.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from asrkit.data.manifest import LeftOut
    from asrkit.evaluation import Outcome, ReferenceRecording
    from asrkit.runtime import Recognizer
    from asrkit.search import Search

    # Utterances with the head's emissions, (E, V).
    Known = Sequence[tuple[ReferenceRecording, np.ndarray]]


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit tune", __doc__,
        "asrkit tune --model MODEL --lm lm.arpa data/an4/dev.jsonl\n"
        "  asrkit tune --model MODEL --lm t.arpa --lm-units tokens --beam 20 dev.jsonl",
    )  # fmt: skip
    add_model(arguments)
    add_context(arguments)
    add_search(arguments)
    add_batch(arguments)
    arguments.add_argument("manifest", help="recordings with their texts, not used in training")
    return arguments.run(tune, argv)


WEIGHTS, BONUSES = (0.2, 0.4, 0.6, 0.8, 1.0, 1.5), (-1.0, 0.0, 0.5, 1.0, 2.0, 3.0)


def tune(options: argparse.Namespace) -> int:
    from asrkit.build import build_fusion
    from asrkit.cli.recognizer import context_of, hotwords_of, lm_of, name_left_out, search_of
    from asrkit.evaluation.outcomes import traced
    from asrkit.evaluation.scoring import score_of
    from asrkit.evaluation.testset import read_batches
    from asrkit.evaluation.wer import interval_shown
    from asrkit.runtime import recognizer_of
    from asrkit.runtime.load import load_runnable
    from asrkit.search import KINDS

    lm = lm_of(options)
    if lm is None:
        raise UserError("tuning needs a language model: --lm FILE")
    file = load_runnable(options.model)
    if options.search is None and not KINDS[file.config.search.kind].takes_fusion:
        options.search = "prefix_beam"
    searching = search_of(options, file)
    # Reject or report words that do not fit before the network starts.
    model = build_fusion(lm, searching, file.tokenizer).weighted.model
    recognizer = recognizer_of(
        file, context_of(options, file), searching, options.device, backend=None,
        threads=options.model_threads,
    )  # fmt: skip
    recognizer = recognizer.with_hotwords(hotwords_of(options))
    left_out: list[LeftOut] = []
    manifest, normalize = options.manifest, recognizer.normalizer
    batches = read_batches(manifest, normalize, options.batch_seconds, left_out)
    known = [  # the network runs once, for all searches
        (utterance, trace.emissions)
        for batch in batches
        for utterance, (_, trace) in zip(batch, traced(recognizer, batch), strict=True)
    ]
    status = name_left_out("asrkit tune", left_out)
    if not known:
        raise UserError(f"{manifest}: no utterance could be read")

    def errors(name: str, search: Search) -> int:
        """Return and print the errors with a search."""
        score = score_of(read(recognizer.with_search(search), known))
        if score.words.rate is None:
            raise UserError(f"{manifest}: the texts have no words for tuning")
        if name == "without":
            print(f"{'weight':<8} {'bonus':<7} {score.words.name:>8}  95 %")
        print(f"{name:<16} {score.words.percent:>8}  {interval_shown(score.interval)}", flush=True)
        return score.words.errors

    without, found = errors("without", recognizer.search), {}
    weights = WEIGHTS if options.lm_weight is None else [lm.weight]
    bonuses = BONUSES if options.word_bonus is None else [lm.word_bonus]
    for weight, bonus in product(weights, bonuses):
        chosen = lm.model_copy(update={"weight": weight, "word_bonus": bonus})
        fusion = build_fusion(chosen, searching, file.tokenizer, model)
        name = f"{weight:<8g} {bonus:<7g}"
        found[weight, bonus] = errors(name, recognizer.search.plus(fusion))
    weight, bonus = min(found, key=found.__getitem__)
    if found[weight, bonus] < without:
        print(f"best: --lm-weight {weight:g} --word-bonus {bonus:g}")
    else:
        print("no pair is better than recognition without a language model")
    return status


def read(recognizer: Recognizer, known: Known) -> list[Outcome]:
    """Return the texts of a recogniser for the log-probabilities of each utterance."""
    from asrkit.evaluation import Outcome

    return [
        Outcome(
            utterance.id, utterance.seconds, recognizer.rewrite(utterance.reference),
            recognizer.read(rows, len(utterance.samples)), recognizer.frame_ms,
        )
        for utterance, rows in bar(known, "searching", "utterance", len(known))
    ]  # fmt: skip
