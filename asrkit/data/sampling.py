"""Batches of utterances of similar duration, planned only from the durations."""

import math
import random
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TypeVar

import numpy as np

PIECE = 1 << 16  # numbers converted to Python objects at a time: objects take 4 times the memory

Item = TypeVar("Item")


@dataclass(eq=False)
class EpochBatches:
    """The batches of one epoch, each as a seed and the indices of its utterances.

    The seed is for the batch's random draws. An epoch is planned as a whole before its first batch,
    only from durations. Batch k depends only on (seed, epoch, k), and resuming at batch k does not
    read the batches before. All ranks of a distributed run plan the same batches and use their
    share, so that several ranks train on the same batches as one.
    """

    durations: np.ndarray  # (n,) seconds
    # Most audio in a batch, with its padding; a longer utterance is a batch by itself.
    max_batch_seconds: float
    # Ordered by duration, the utterances of a batch are within about one of `num_buckets` equal
    # parts of all. More buckets mean less padding and less variety.
    num_buckets: int
    seed: int
    epoch: int
    start: int = 0  # first batch of all ranks together
    rank: int = 0  # uses the batches start + rank, start + rank + world_size, …
    world_size: int = 1
    chosen: np.ndarray | None = None  # (m,) indices of the utterances of this epoch; None for all

    def __iter__(self) -> Iterator[tuple[str, list[int]]]:
        places, begins, batches = self.planned
        for index in range(self.start + self.rank, len(batches), self.world_size):
            batch = batches[index]
            own = places[begins[batch] : begins[batch + 1]]
            utterances = own if self.chosen is None else self.chosen[own]
            yield f"{self.seed}-{self.epoch}-{index}", utterances.tolist()

    @property
    def num_batches(self) -> int:
        """The number of batches of the epoch on all ranks, including those before `start`."""
        return len(self.planned[2])

    @property
    def padding(self) -> float:
        """The share of silence in the epoch's batches, which makes their rows equally long."""
        places, begins, _ = self.planned
        durations = self.durations[places if self.chosen is None else self.chosen[places]]
        longest = np.maximum.reduceat(durations, begins[:-1])
        return float(1.0 - durations.sum() / (longest * np.diff(begins)).sum())

    @cached_property
    def planned(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The indices (n,), the begins of batches (batches + 1,), the order of batches (batches,).

        Utterances are ordered by duration plus a random shift and split into batches, which are
        then shuffled. All parts of the epoch are therefore alike.
        """
        draw = random.Random(f"{self.seed}-{self.epoch}")
        durations = self.durations if self.chosen is None else self.durations[self.chosen]
        count = len(durations)
        places = shuffled(count, draw)
        places = places[np.argsort(durations[places], kind="stable")]
        width = count / self.num_buckets
        shifted = np.fromiter((width * draw.random() for _ in range(count)), np.float64, count)
        shifted += np.arange(count)
        places = places[np.argsort(shifted, kind="stable")]
        begins = within(durations[places], self.max_batch_seconds)
        return places, begins, shuffled(len(begins) - 1, draw)


def with_replay(
    durations: np.ndarray, count: int, share: float, seed: int, epoch: int
) -> np.ndarray:
    """Return the indices of an epoch: the first `count` utterances, and a random part of the rest.

    Old utterances are drawn without repetition, or again from the first if there are too few.

    Args:
        share: share of the epoch's seconds that are of old utterances.
    """
    draw = random.Random(f"{seed}-{epoch}-replay")
    wanted = durations[:count].sum() * share / (1.0 - share)
    rounds = math.ceil(wanted / durations[count:].sum())
    old = np.concatenate([shuffled(len(durations) - count, draw) for _ in range(rounds)]) + count
    # The draw ends where its seconds are nearest to the wanted ones, but has one utterance.
    seconds = np.concatenate([[0.0], np.cumsum(durations[old])])
    drawn = old[: max(1, int(np.abs(seconds - wanted).argmin()))]
    return np.concatenate([np.arange(count), drawn])


def shuffled(count: int, draw: random.Random) -> np.ndarray:
    """Return the numbers 0 to `count` - 1, shuffled: (count,) uint32."""
    numbers = array("I", range(count))
    draw.shuffle(numbers)
    return np.frombuffer(numbers, np.uint32) if count else np.zeros(0, np.uint32)


def within(durations: np.ndarray, max_batch_seconds: float) -> np.ndarray:
    """Split utterances in this order into the largest batches that the limit allows with padding.

    Return the begins of the batches, (batches + 1,); the last is the number of utterances.
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
    """Yield batches of items of similar length, the longest first; each has at least one item.

    Args:
        batch_seconds: most seconds in a batch, counting every item as long as the longest.
    """
    waiting = sorted(items, key=seconds)
    while waiting:
        count = max(1, int(batch_seconds / max(seconds(waiting[-1]), 0.1)))
        yield waiting[-count:]
        del waiting[-count:]
