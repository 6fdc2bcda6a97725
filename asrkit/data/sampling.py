"""Sampling batches: lhotse's dynamic bucketing, made resumable and the same on all ranks."""

import random
import warnings
from collections.abc import Iterator
from itertools import islice

from lhotse import CutSet
from lhotse.dataset import DynamicBucketingSampler, DynamicCutSampler


class EpochBatches:
    """The batches of one epoch, each with the seed of its random draws.

    The order is a function of (seed, epoch). Cuts in memory are shuffled as a whole, lazy ones
    within a buffer of a thousand. To resume, the batches before `start` are sampled and dropped,
    without reading audio. All ranks of a distributed run sample the same batches and each takes its
    share, so that several ranks train on the same batches as one.

    Args:
        cuts: utterances.
        max_batch_seconds: most audio in a batch.
        num_buckets: groups of utterances of similar duration.
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
        self.seed, self.epoch = seed, epoch
        self.first, self.stride = start + rank, world_size
        if not cuts.is_lazy:  # lhotse's own buffer shuffles no more than 20 000
            cuts = cuts.shuffle(random.Random(f"{seed}-{epoch}"))
        common = {"max_duration": max_batch_seconds, "shuffle": True, "drop_last": False,
                  "seed": seed, "rank": 0, "world_size": 1}  # fmt: skip
        num_buckets = min(num_buckets, sum(1 for _ in islice(cuts, 2 * num_buckets)) // 2)
        # Lazy cuts may hold their audio: few are read ahead.
        ahead = {"buffer_size": 1000, "num_cuts_for_bins_estimate": 1000} if cuts.is_lazy else {}
        with warnings.catch_warnings():  # lhotse warns of cuts that are not lazy
            warnings.simplefilter("ignore")
            if num_buckets < 2:  # too few for lhotse, which estimates the buckets from utterances
                self.sampler = DynamicCutSampler(cuts, **common)
            else:
                self.sampler = DynamicBucketingSampler(
                    cuts, num_buckets=num_buckets, **common, **ahead
                )
        self.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[tuple[str, CutSet]]:
        # lhotse's warning of an utterance longer than a batch, which becomes a batch by itself.
        warnings.filterwarnings("ignore", message="We have exceeded the max_duration")
        numbered = enumerate(self.sampler)
        for index, cuts in islice(numbered, self.first, None, self.stride):
            yield f"{self.seed}-{self.epoch}-{index}", cuts
