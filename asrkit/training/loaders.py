"""Loaders of batches, for training and for scoring."""

import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch.utils.data import DataLoader, Sampler

from asrkit.data.dataset import Batch, SpeechDataset, TextEncoder
from asrkit.data.indexed_cuts import Cuts
from asrkit.data.sampling import EpochBatches

logger = logging.getLogger(__name__)


Planned = tuple[str, list[int]]  # a batch: seed and indices of its utterances


class Epoch(Sampler[Planned]):
    """The batches of the current epoch. They are replaced, so that one loader serves all epochs."""

    def __init__(self) -> None:
        self.batches: Iterable[Planned] = ()

    def __iter__(self) -> Iterator[Planned]:
        return iter(self.batches)


class Step(NamedTuple):
    """An optimiser step: this rank's batches, and sums over the batches of all ranks."""

    batches: list[Batch]  # may include fillers
    tokens: float
    seconds: float
    num_left_out: int
    num_bad: int


def loaded(
    dataset: SpeechDataset, batches: Iterable[Planned], num_workers: int, pinned: bool = False
) -> DataLoader[Batch]:
    """Return a loader of these batches, which worker processes read ahead.

    The processes live as long as the loader, over all its iterations.

    Args:
        pinned: use pinned memory, from which a GPU copies.
    """
    return DataLoader(
        dataset, batch_size=None, sampler=batches, num_workers=num_workers,
        pin_memory=pinned, persistent_workers=num_workers > 0,
    )  # fmt: skip


def held_out(
    cuts: Cuts,
    encode: TextEncoder,
    max_batch_seconds: float,
    num_workers: int = 0,
    rank: int = 0,
    world_size: int = 1,
) -> DataLoader[Batch]:
    """Return a loader of a rank's share of the batches for scoring, without augmentation.

    The batches of all ranks together have every utterance once.
    """
    dataset = SpeechDataset(cuts, encode, to_train=False)
    batches = EpochBatches(
        dataset.durations, max_batch_seconds, num_buckets=20, seed=0, epoch=0,
        rank=rank, world_size=world_size,
    )  # fmt: skip
    return loaded(dataset, batches, num_workers)


def report_left_out(batch: Batch, most: int) -> None:
    """Log the names of at most `most` utterances that were left out of a batch."""
    for utterance in batch.left_out[: max(0, most)]:
        logger.warning("left out %s", utterance)


def filler() -> Batch:
    """Return a second of silence, for a rank without batches that must step with the others."""
    one = torch.ones(1, dtype=torch.int64)
    return Batch("filler", [], torch.zeros(1, 16000), one * 16000, one[None], one, [], [], 0, 0.0)
