"""The batches of a training, which worker processes read ahead."""

import logging
import math
from collections.abc import Iterator
from functools import cached_property
from itertools import islice

import torch
from torch.utils.data import DataLoader, Sampler

from asrkit.config.schema import Config
from asrkit.data.sampling import EpochBatches, with_replay
from asrkit.training.checkpoints import Progress
from asrkit.training.dataset import Corpus
from asrkit.training.distributed import Ranks
from asrkit.training.utterances import Augmentation, Batch, SpeechDataset

logger = logging.getLogger(__name__)


class TrainingBatches(Sampler[tuple[str, list[int]]]):
    """This rank's batches, and the sampler of their loader, which serves all epochs.

    Attributes:
        num_utterances: utterances of the current epoch.
    """

    def __init__(self, corpus: Corpus, config: Config, ranks: Ranks) -> None:
        self.corpus, self.config, self.ranks = corpus, config, ranks
        self.num_utterances = len(corpus.train)
        self.progress = Progress()
        self.is_reported = False  # whether the number of steps was logged

    def groups(self, progress: Progress) -> Iterator[list[Batch]]:
        """Yield the batches of each step in the rest of an epoch; then [] forever."""
        self.progress = progress
        batches = iter(self.loader)
        while True:
            yield list(islice(batches, self.config.training.accumulate_batches))

    def __iter__(self) -> Iterator[tuple[str, list[int]]]:
        """Plan the rest of the epoch; yield the seed of each batch and its utterances' indices."""
        data, seed, progress = self.config.data, self.config.training.seed, self.progress
        durations, chosen = self.corpus.train.durations, None
        if data.replay:
            new, share = self.corpus.num_new, data.replay_share
            chosen = with_replay(durations, new, share, seed, progress.epoch)
            self.num_utterances = len(chosen)
        planned = EpochBatches(
            durations, data.max_batch_seconds, data.num_buckets, seed, progress.epoch,
            progress.batch, self.ranks.rank, self.ranks.size, chosen,
        )  # fmt: skip
        if not self.is_reported:  # once: epochs may differ by a few batches
            self.is_reported = True
            options, batches = self.config.training, planned.num_batches
            epochs, group = int(options.epochs), options.accumulate_batches * self.ranks.size
            logger.info(
                "%d epochs of %d batches%s, %.1f %% padding: about %d steps; epochs averaged: %d",
                epochs, batches, f", {group} a step" if group > 1 else "", 100 * planned.padding,
                epochs * math.ceil(batches / group), min(int(options.average), epochs),
            )  # fmt: skip
        return iter(planned)

    @cached_property
    def dataset(self) -> SpeechDataset:
        augmentation = Augmentation(self.corpus.noise, self.config.augmentation)
        return SpeechDataset(self.corpus.train, self.corpus.encode, augmentation)

    @cached_property
    def loader(self) -> DataLoader[Batch]:
        """The loader, with processes that live as long as it; a GPU copies from pinned memory."""
        num_workers = self.config.data.num_workers
        return DataLoader(
            self.dataset, batch_size=None, sampler=self, num_workers=num_workers,
            pin_memory=self.ranks.device.type == "cuda", persistent_workers=num_workers > 0,
        )  # fmt: skip


def filler() -> Batch:
    """Return a second of silence, for a rank without batches that must step with the others."""
    one = torch.ones(1, dtype=torch.int64)
    return Batch("filler", [], torch.zeros(1, 16000), one * 16000, one[None], one, [], [], 0, 0.0)
