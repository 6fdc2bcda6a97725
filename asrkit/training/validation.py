"""Scores on the held-out set during training."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest

from asrkit.audio import Frontend
from asrkit.backends.registry import eager
from asrkit.build import build_search
from asrkit.config import Config
from asrkit.data.dataset import Batch
from asrkit.evaluation import Outcome, ReferenceRecording, Score, recognize, scores
from asrkit.evaluation.scoring import losses_of, rates
from asrkit.evaluation.wer import UNITS, rate_shown
from asrkit.evaluation.written import normalizer_of, rules_for
from asrkit.model import FULL, Context, Network
from asrkit.runtime import Recognizer
from asrkit.search import Search
from asrkit.text import Tokenizer
from asrkit.training.dataset import Corpus
from asrkit.training.distributed import Ranks
from asrkit.training.loaders import held_out

logger = logging.getLogger(__name__)

CURVES = {  # by tag: name, format of a value, text for a missing value
    **{
        f"{tag}{name.lower()}": (f"{kind}{name}", rate_shown, "no reference words")
        for tag, kind in (("", ""), ("normalized_", "normalised "))
        for name in UNITS
    },
    "dev_loss": ("loss", "{:.3f} a token".format, "no text can be written and aligned"),
}


def curves_on_dev(found: dict[str, Score]) -> dict[str, dict[str, float]]:
    """Log the rates and losses of an epoch's scores; return them by tag and chunk size."""
    curves = rates(found) | {"dev_loss": losses_of(found)}
    tags = [tag for tag in CURVES if tag in curves]
    for tag in tags:
        name, form, nothing = CURVES[tag]
        shown = "  ".join(f"{of}: {form(value)}" for of, value in curves[tag].items())
        logger.info("  dev %s  %s", name, shown or nothing)
    return {tag: curves[tag] for tag in tags}


def scores_on_dev(
    model: Network,
    corpus: Corpus,
    config: Config,
    ranks: Ranks,
    frontend: Frontend,
    align: bool = False,
) -> dict[str, Score]:
    """Score the model on dev, in full context and each chunk size, with the longest left context.

    Every rank decodes its share of the batches. The scores are on all ranks, equal to those of a
    single rank.

    Args:
        model: whole model on this rank's device; it is put into evaluation mode.
        ranks: ranks of the run; all must call this.
        align: align the references too, to measure delays, which needs more time.
    """
    data, encode = config.data, corpus.encode
    dev = held_out(
        corpus.dev, encode, data.max_batch_seconds, data.num_workers, ranks.rank, ranks.size
    )
    search = build_search(config.search, model.head)
    own = validate(model, encode.tokenizer, search, dev, config.context.validated, align, frontend)
    # The order of a single rank, because sums of floats depend on the order.
    rounds = zip_longest(*ranks.gather([list(own)]), fillvalue=[])
    normalize = normalizer_of(rules_for(data.languages)) if config.text.written else None
    return scores(chain.from_iterable(batch for each in rounds for batch in each), normalize)


def validate(
    model: Network,
    tokenizer: Tokenizer,
    search: Search,
    batches: Iterable[Batch],
    contexts: Sequence[Context],
    align: bool = False,
    frontend: Frontend | None = None,
) -> Iterator[list[dict[str, Outcome]]]:
    """Yield the results of each batch's utterances, by name of the chunk size.

    Args:
        model: model in its current state; it is put into evaluation mode.
        align: align the references too, for delays and the times of words.
        frontend: frontend of the model; Kaldi's if None.
    """
    model.eval()

    def recognizer(context: Context) -> Recognizer:
        # A backend keeps tables computed from the weights: changed weights need a new backend.
        backend = eager(model, context)
        return Recognizer(backend, tokenizer, search, frontend=frontend)

    aligner = recognizer(FULL)
    recognizers = {each.context: each for each in map(recognizer, contexts)}
    for batch in batches:
        yield list(recognize([utterances_of(batch)], recognizers, aligner if align else None))


def utterances_of(batch: Batch) -> list[ReferenceRecording]:
    """Return the utterances of a batch; log those that were left out of it."""
    for each in batch.left_out:
        logger.warning("not scored %s", each)
    rows = zip(batch.ids, batch.samples, batch.num_samples.tolist(), batch.texts, strict=True)
    return [ReferenceRecording(id, row[:length].numpy(), text) for id, row, length, text in rows]
