"""The scores of a model in training on its held-out set."""

import logging
from collections.abc import Iterable, Iterator, Sequence

from asrkit.audio import Frontend
from asrkit.backends.registry import eager
from asrkit.data.dataset import Batch
from asrkit.evaluation import Outcome, Utterance, recognize
from asrkit.model import FULL_CONTEXT, ConformerCTC
from asrkit.runtime import Recognizer
from asrkit.search import Search
from asrkit.text import Tokenizer

logger = logging.getLogger(__name__)


def validate(
    model: ConformerCTC,
    tokenizer: Tokenizer,
    search: Search,
    batches: Iterable[Batch],
    contexts: Sequence[tuple[int, int, int]],
    align: bool = False,
    frontend: Frontend | None = None,
) -> Iterator[list[dict[str, Outcome]]]:
    """What the model makes of each batch's utterances as it is now, by name of the chunk size.

    Args:
        model: is put into evaluation mode.
        tokenizer: of its labels.
        search: for the texts.
        batches: with their references.
        contexts: (chunk_size, left_context, right_context) of each.
        align: the references too, for delays and the times of words.
        frontend: of the model; Kaldi's if None.
    """
    model.eval()

    def recognizer(chunk_size: int, left_context: int, right_context: int) -> Recognizer:
        # A backend keeps tables made of the weights: a new one for weights that have changed.
        backend = eager(model, chunk_size, left_context, right_context)
        return Recognizer(backend, tokenizer, search, frontend=frontend)

    aligner = recognizer(FULL_CONTEXT, 0, 0)
    recognizers = {each.context: each for each in (recognizer(*each) for each in contexts)}
    for batch in batches:
        yield list(recognize([utterances_of(batch)], recognizers, aligner if align else None))


def utterances_of(batch: Batch) -> list[Utterance]:
    """Those of a batch; what was left out of it is named in the log."""
    for each in batch.left_out:
        logger.warning("not scored %s", each)
    rows = zip(batch.ids, batch.samples, batch.num_samples.tolist(), batch.texts, strict=True)
    return [Utterance(id, row[:length].numpy(), text) for id, row, length, text in rows]
