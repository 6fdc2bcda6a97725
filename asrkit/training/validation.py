"""Scores on held-out sets during training."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest

from torch.utils.data import DataLoader

from asrkit.audio import Frontend
from asrkit.backends.pytorch import eager
from asrkit.build import build_search
from asrkit.config.schema import Config
from asrkit.context import FULL, Context
from asrkit.data.recordings import Recordings
from asrkit.data.sampling import EpochBatches
from asrkit.data.text_encoder import TextEncoder
from asrkit.evaluation import Outcome, ReferenceRecording, Score, recognize, scores
from asrkit.evaluation.scoring import rates
from asrkit.evaluation.wer import rate_shown
from asrkit.evaluation.written import normalizer_of, rules_for
from asrkit.model import Network
from asrkit.runtime import Recognizer
from asrkit.search import Search
from asrkit.text import Tokenizer
from asrkit.training.distributed import Ranks
from asrkit.training.utterances import Batch, SpeechDataset

logger = logging.getLogger(__name__)


def curves_on_dev(scored: dict[str, Score]) -> dict[str, dict[str, float]]:
    """Log the rates and losses of an epoch's scores; return them by tag and chunk size."""
    curves = rates(scored)
    losses = {name: score.loss for name, score in scored.items() if score.loss is not None}
    for tag, by_chunk in curves.items():
        kind, _, unit = tag.rpartition("_")
        log_rates(f"dev {'normalised ' * bool(kind)}{unit.upper()}", by_chunk)
    shown = "  ".join(f"{chunk}: {loss:.3f} a token" for chunk, loss in losses.items())
    logger.info("  dev loss  %s", shown or "no text can be written and aligned")
    return curves | {"dev_loss": losses}


def log_rates(name: str, by_chunk: dict[str, float]) -> None:
    """Log the error rates on a set by chunk size."""
    shown = "  ".join(f"{chunk}: {rate_shown(rate)}" for chunk, rate in by_chunk.items())
    logger.info("  %s  %s", name, shown or "no reference words")


def scores_on(
    recordings: Recordings, model: Network, encode: TextEncoder, config: Config, ranks: Ranks,
    align: bool = False,
) -> dict[str, Score]:  # fmt: skip
    """Score the model on a set, in full context and each chunk size, with the longest left context.

    Every rank decodes its share of the batches. The scores are on all ranks, equal to those of a
    single rank.

    Args:
        model: model on this rank's device; it is put into evaluation mode.
        ranks: ranks of the run; all must call this.
        align: align the references too, to measure delays, which needs more time.
    """
    data = config.data
    batches = held_out(
        recordings, encode, data.max_batch_seconds, data.num_workers, ranks.rank, ranks.size
    )
    search = build_search(config.search, config.model.head.kind)
    contexts = config.context.validated
    outcomes = validate(model, encode.tokenizer, search, batches, contexts, align, encode.frontend)
    # The order of a single rank, because sums of floats depend on the order.
    rounds = chain.from_iterable(zip_longest(*ranks.gather([list(outcomes)]), fillvalue=[]))
    normalize = normalizer_of(rules_for(data.languages)) if config.text.written else None
    return scores(chain.from_iterable(rounds), normalize)


def held_out(
    recordings: Recordings, encode: TextEncoder, max_batch_seconds: float, num_workers: int = 0,
    rank: int = 0, world_size: int = 1,
) -> DataLoader[Batch]:  # fmt: skip
    """Return a loader of a rank's share of the batches for scoring, without augmentation.

    The batches of all ranks together have every utterance once.
    """
    dataset = SpeechDataset(recordings, encode, to_train=False)
    batches = EpochBatches(
        recordings.durations, max_batch_seconds, num_buckets=20, seed=0, epoch=0,
        rank=rank, world_size=world_size,
    )  # fmt: skip
    return DataLoader(dataset, batch_size=None, sampler=batches, num_workers=num_workers)


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
        return Recognizer(eager(model, context), tokenizer, search, frontend=frontend)

    aligner = recognizer(FULL)
    recognizers = {each.context: each for each in map(recognizer, contexts)}
    for batch in batches:
        for utterance in batch.left_out:
            logger.warning("not scored %s", utterance)
        rows = zip(batch.ids, batch.samples, batch.num_samples.tolist(), batch.texts, strict=True)
        recordings = [
            ReferenceRecording(id, row[:size].numpy(), text) for id, row, size, text in rows
        ]
        yield list(recognize([recordings], recognizers, aligner if align else None))
