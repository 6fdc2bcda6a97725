"""The scores of a model in training on its held-out set."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest

from asrkit.audio import Frontend
from asrkit.backends.registry import eager
from asrkit.build import build_search
from asrkit.config import Config
from asrkit.data.dataset import Batch
from asrkit.evaluation import Outcome, ReferenceRecording, Score, recognize, scores
from asrkit.model import FULL, Context, Network
from asrkit.runtime import Recognizer
from asrkit.search import Search
from asrkit.text import Tokenizer
from asrkit.training.dataset import Corpus
from asrkit.training.distributed import Ranks
from asrkit.training.loaders import held_out

logger = logging.getLogger(__name__)


def scores_on_dev(
    model: Network,
    corpus: Corpus,
    config: Config,
    ranks: Ranks,
    frontend: Frontend,
    align: bool = False,
) -> dict[str, Score]:
    """Scores on dev, in full context and each chunk size, with the longest left context.

    Every rank decodes its share of the batches, and all have the scores that one would.

    Args:
        model: whole, on this rank's device; is put into evaluation mode.
        corpus: whose dev is decoded.
        config: of its contexts, batches and search.
        ranks: all of which have to call this.
        frontend: of the model.
        align: the references too, which measures delays and takes its time.
    """
    data, encode = config.data, corpus.encode
    dev = held_out(
        corpus.dev, encode, data.max_batch_seconds, data.num_workers, ranks.rank, ranks.size
    )
    search = build_search(config.search, model.head)
    own = validate(model, encode.tokenizer, search, dev, config.context.validated, align, frontend)
    # In the order that one rank would have them, for sums of floats depend on it.
    rounds = zip_longest(*ranks.gather([list(own)]), fillvalue=[])
    return scores(chain.from_iterable(batch for each in rounds for batch in each))


def validate(
    model: Network,
    tokenizer: Tokenizer,
    search: Search,
    batches: Iterable[Batch],
    contexts: Sequence[Context],
    align: bool = False,
    frontend: Frontend | None = None,
) -> Iterator[list[dict[str, Outcome]]]:
    """What the model makes of each batch's utterances as it is now, by name of the chunk size.

    Args:
        model: is put into evaluation mode.
        tokenizer: of its labels.
        search: for the texts.
        batches: with their references.
        contexts: contexts in which the utterances are recognised.
        align: the references too, for delays and the times of words.
        frontend: of the model; Kaldi's if None.
    """
    model.eval()

    def recognizer(context: Context) -> Recognizer:
        # A backend keeps tables made of the weights: a new one for weights that have changed.
        backend = eager(model, context)
        return Recognizer(backend, tokenizer, search, frontend=frontend)

    aligner = recognizer(FULL)
    recognizers = {each.context: each for each in map(recognizer, contexts)}
    for batch in batches:
        yield list(recognize([utterances_of(batch)], recognizers, aligner if align else None))


def utterances_of(batch: Batch) -> list[ReferenceRecording]:
    """Those of a batch; what was left out of it is named in the log."""
    for each in batch.left_out:
        logger.warning("not scored %s", each)
    rows = zip(batch.ids, batch.samples, batch.num_samples.tolist(), batch.texts, strict=True)
    return [ReferenceRecording(id, row[:length].numpy(), text) for id, row, length, text in rows]
