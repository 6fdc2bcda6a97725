"""Recordings longer than any of training, made of held-out ones one after the other."""

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

TIMES = (1, 2, 5, 10)  # the duration of the longest utterance of training


class Utterance(NamedTuple):
    samples: np.ndarray  # float32 mono (n,) at 16 kHz
    text: str


def join(utterances: Sequence[Utterance], num_samples: float) -> list[Utterance]:
    """The same recordings, in the same order, in rows of about `num_samples`.

    Every length has the same audio and the same words: only where it is cut differs. The order
    does not follow the manifest, whose neighbours may be one speaker's.
    """
    order = random.Random(0).sample(range(len(utterances)), len(utterances))
    rows = split([len(utterances[index].samples) for index in order], num_samples)
    return [concatenate([utterances[order[i]] for i in row]) for row in rows]


def split(sizes: Sequence[int], target: float) -> list[list[int]]:
    """Indices in order, in groups whose sizes sum to about the target, none of them empty."""
    count = max(1, round(sum(sizes) / target))
    groups: list[list[int]] = [[] for _ in range(count)]
    before = 0
    for index, size in enumerate(sizes):
        groups[int((before + size / 2) / sum(sizes) * count)].append(index)  # by its middle
        before += size
    return [group for group in groups if group]


def concatenate(parts: Sequence[Utterance]) -> Utterance:
    samples = np.concatenate([part.samples for part in parts])
    return Utterance(samples, " ".join(part.text for part in parts))
