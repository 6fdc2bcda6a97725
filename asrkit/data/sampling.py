"""Batches of utterances of similar duration, planned on their durations alone."""

import random
from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import TypeVar

import numpy as np

PIECE = 1 << 16  # numbers that are Python objects at a time: each takes four times its memory

Item = TypeVar("Item")


class EpochBatches:
    """The batches of one epoch, each as the places of its utterances and a seed.

    The seed is that of the batch's random draws. An epoch is planned as a whole before its first
    batch, by durations alone: batch k is a function of (seed, epoch, k), and resuming at it reads
    nothing of those before. All ranks of a distributed run plan the same and each takes its share,
    so that several ranks train on the same batches as one.

    Args:
        durations: (n,) of all utterances, seconds.
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
        durations: np.ndarray,
        max_batch_seconds: float,
        num_buckets: int,
        seed: int,
        epoch: int,
        start: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.durations, self.max_batch_seconds = durations, max_batch_seconds
        self.num_buckets, self.seed, self.epoch = num_buckets, seed, epoch
        self.first, self.stride = start + rank, world_size

    def __iter__(self) -> Iterator[tuple[str, list[int]]]:
        places, begins, batches = self.planned
        for index in range(self.first, len(batches), self.stride):
            batch = batches[index]
            utterances = places[begins[batch] : begins[batch + 1]].tolist()
            yield f"{self.seed}-{self.epoch}-{index}", utterances

    @property
    def num_batches(self) -> int:
        """Number of batches of the epoch on all ranks, with those before the first."""
        return len(self.planned[2])

    @cached_property
    def planned(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The epoch: all places, where in them each batch begins, and the order of the batches.

        Utterances are ordered by duration and a random shift, cut into batches, and these shuffled:
        so every part of the epoch is alike. (n,), (batches + 1,) and (batches,).
        """
        draw = random.Random(f"{self.seed}-{self.epoch}")
        count = len(self.durations)
        places = shuffled(count, draw)
        places = places[np.argsort(self.durations[places], kind="stable")]
        width = count / self.num_buckets
        shifted = np.fromiter((width * draw.random() for _ in range(count)), np.float64, count)
        shifted += np.arange(count)
        places = places[np.argsort(shifted, kind="stable")]
        begins = within(self.durations[places], self.max_batch_seconds)
        return places, begins, shuffled(len(begins) - 1, draw)


def shuffled(count: int, draw: random.Random) -> np.ndarray:
    """The numbers from 0 to `count` - 1, shuffled: (count,) uint32."""
    numbers = array("I", range(count))
    draw.shuffle(numbers)
    return np.frombuffer(numbers, np.uint32) if count else np.zeros(0, np.uint32)


def within(durations: np.ndarray, max_batch_seconds: float) -> np.ndarray:
    """Where batches of utterances in this order begin, each as large as it may be with its padding.

    Returns:
        (batches + 1,): the last number is that of all utterances.
    """
    begins, first, longest = array("Q", [0]), 0, 0.0
    pieces = (durations[i : i + PIECE].tolist() for i in range(0, len(durations), PIECE))
    for place, duration in enumerate(chain.from_iterable(pieces)):
        if duration > longest:
            longest = duration
        if longest * (place + 1 - first) > max_batch_seconds and place > first:
            begins.append(place)
            first, longest = place, duration
    if len(durations):
        begins.append(len(durations))
    return np.array(begins, np.int64)


def by_length(
    items: Iterable[Item], seconds: Callable[[Item], float], batch_seconds: float
) -> Iterator[list[Item]]:
    """Batches of items of similar length, the longest first; of one if it is longer than a batch.

    Args:
        items: recordings.
        seconds: how long one is.
        batch_seconds: audio in a batch at most, all of them as long as its longest.
    """
    waiting = sorted(items, key=seconds)
    while waiting:
        count = max(1, int(batch_seconds / max(seconds(waiting[-1]), 0.1)))
        yield waiting[-count:]
        del waiting[-count:]
