"""Batches of utterances of similar duration, resumable and the same on all ranks."""

import random
import warnings
from collections.abc import Iterable, Iterator
from itertools import islice

from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.dataset import DynamicBucketingSampler, DynamicCutSampler
from lhotse.dataset.sampling.base import CutSampler


class EpochBatches:
    """The batches of one epoch, each with the seed of its random draws.

    The order is a function of (seed, epoch). Cuts in memory are mixed as a whole, lazy ones by
    lhotse within a buffer of a thousand. To resume, the batches before `start` are sampled and
    dropped, without reading audio. All ranks of a distributed run sample the same batches and each
    takes its share, so that several ranks train on the same batches as one.

    Args:
        cuts: utterances.
        max_batch_seconds: most audio in a batch, with its padding; a longer utterance is a batch
            by itself.
        num_buckets: the utterances of a batch are within about so small a part of all, ordered by
            duration: the more, the less padding and the less mixed.
        seed: of the order and of each batch's random draws.
        epoch: counted from 0.
        start: index of the first batch.
        rank: this rank, which takes the batches start + rank, start + rank + world_size, …
        world_size: number of ranks.
    """

    def __init__(
        self,
        cuts: CutSet,
        max_batch_seconds: float,
        num_buckets: int,
        seed: int,
        epoch: int,
        start: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.cuts, self.max_batch_seconds, self.num_buckets = cuts, max_batch_seconds, num_buckets
        self.seed, self.epoch = seed, epoch
        self.first, self.stride = start + rank, world_size

    def __iter__(self) -> Iterator[tuple[str, CutSet]]:
        batches = self._lazy() if self.cuts.is_lazy else self._mixed()
        for index, cuts in islice(enumerate(batches), self.first, None, self.stride):
            yield f"{self.seed}-{self.epoch}-{index}", cuts

    def _mixed(self) -> list[CutSet]:
        """Cuts in memory, ordered by duration and a random shift, cut into batches, shuffled.

        Every part of the epoch is alike: lhotse's sampler, which draws from its buckets until they
        are empty, has the last ones left at the end, where the learning rate is lowest.
        """
        draw = random.Random(f"{self.seed}-{self.epoch}")
        cuts = list(self.cuts)
        draw.shuffle(cuts)
        cuts.sort(key=lambda cut: cut.duration)
        width = len(cuts) / self.num_buckets
        places = [place + draw.uniform(0, width) for place in range(len(cuts))]
        order = sorted(range(len(cuts)), key=places.__getitem__)
        batches = list(within([cuts[i] for i in order], self.max_batch_seconds))
        draw.shuffle(batches)
        return batches

    def _lazy(self) -> Iterable[CutSet]:
        """Cuts that are read as they come, and may hold their audio: few are read ahead."""
        options = {"max_duration": self.max_batch_seconds, "shuffle": True, "drop_last": False,
                   "seed": self.seed, "rank": 0, "world_size": 1}  # fmt: skip
        few = sum(1 for _ in islice(self.cuts, 2 * self.num_buckets)) // 2
        num_buckets = min(self.num_buckets, few)
        sampler: CutSampler
        if num_buckets < 2:  # too few for lhotse, which estimates the buckets from utterances
            sampler = DynamicCutSampler(self.cuts, **options)
        else:
            ahead = {"buffer_size": 1000, "num_cuts_for_bins_estimate": 1000}
            sampler = DynamicBucketingSampler(
                self.cuts, num_buckets=num_buckets, **options, **ahead
            )
        sampler.set_epoch(self.epoch)
        # Of an utterance longer than a batch, which becomes a batch by itself.
        warnings.filterwarnings("ignore", message="We have exceeded the max_duration")
        return sampler


def within(cuts: Iterable[Cut], max_batch_seconds: float) -> Iterator[CutSet]:
    """Cuts in batches, in their order, each as large as it may be with its padding."""
    batch: list[Cut] = []
    longest = 0.0
    for cut in cuts:
        longest = max(longest, cut.duration)
        if batch and longest * (len(batch) + 1) > max_batch_seconds:
            yield CutSet(batch)
            batch, longest = [], cut.duration
        batch.append(cut)
    if batch:
        yield CutSet(batch)
