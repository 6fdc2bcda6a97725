"""The utterances of a corpus: in memory, or in an index and read on demand."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
from lhotse import CutSet
from lhotse.cut import Cut

from asrkit.data.index import Index
from asrkit.data.index_writer import index_of
from asrkit.data.manifest import ManifestError


class IndexedCuts:
    """Utterances of an index at some speeds, read on demand, in any order.

    In another process, unpickling opens the index there, and rejects a different index.

    Args:
        factors: speeds; each utterance occurs at each speed, one after another.
        kept: (n,) numbers of the utterances to use; None for all.
    """

    def __init__(
        self, index: Index, factors: tuple[float, ...] = (1.0,), kept: np.ndarray | None = None
    ) -> None:
        self.index, self.factors, self.kept = index, factors, kept
        durations, rates = index.rows["duration"], index.rows["rate"]
        each = np.stack([at_speed(durations, rates, factor) for factor in factors], axis=1)
        self.durations = each.ravel() if kept is None else each.ravel()[kept]  # seconds

    def __len__(self) -> int:
        return len(self.durations)

    def __getitem__(self, place: int) -> Cut:
        number, factor = self.at(place)
        cut = self.index.read(number)
        return cut if factor == 1.0 else cut.perturb_speed(factor)

    def __iter__(self) -> Iterator[Cut]:
        return (self[place] for place in range(len(self)))

    def at(self, place: int) -> tuple[int, float]:
        """Return the row and the speed of an utterance."""
        if not 0 <= place < len(self):
            raise IndexError(place)
        number, speed = divmod(int(place if self.kept is None else self.kept[place]),
                               len(self.factors))  # fmt: skip
        return number, self.factors[speed]

    def id(self, place: int) -> str:
        """Return the id of an utterance, without reading its audio."""
        number, factor = self.at(place)
        name: str = self.index.values(number)["id"]
        return name if factor == 1.0 else f"{name}_sp{factor}"

    @property
    def text_lengths(self) -> np.ndarray:
        """Lengths of the texts in characters, (n,)."""
        return self.of_rows("text")

    def of_rows(self, name: str) -> np.ndarray:
        """Return a column of the index, (n,), with a value for each utterance."""
        values = np.repeat(self.index.rows[name], len(self.factors))
        return values if self.kept is None else values[self.kept]

    def chosen(self, mask: np.ndarray) -> "IndexedCuts":
        """Return the utterances for which the mask (n,) is true."""
        places = np.flatnonzero(mask).astype(np.uint32)
        kept = places if self.kept is None else self.kept[places]
        return IndexedCuts(self.index, self.factors, kept)

    def fingerprint(self) -> str:
        """Return the SHA-256 of all ids, texts and durations in order."""
        found = hashlib.sha256(self.index.description.lines_sha256.encode())
        found.update(self.durations.tobytes())
        return found.hexdigest()

    def __reduce__(self) -> tuple[object, ...]:
        return _reopened, (self.index.corpus, self.fingerprint(), self.factors, self.kept)


def _reopened(
    corpus: str, fingerprint: str, factors: tuple[float, ...], kept: np.ndarray | None
) -> IndexedCuts:
    cuts = IndexedCuts(index_of(corpus), factors, kept)
    if cuts.fingerprint() != fingerprint:
        raise ManifestError(
            f"{corpus} differs here from the first rank's: copy the same corpus to all machines"
        )
    return cuts


class JoinedCuts:
    """The utterances of several sets, one set after another."""

    def __init__(self, parts: Sequence[CutSet | IndexedCuts]) -> None:
        self.parts = parts
        self.ends = np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, place: int) -> Cut:
        if not 0 <= place < len(self):
            raise IndexError(place)
        number = int(np.searchsorted(self.ends, place, side="right"))
        part = self.parts[number]
        return part[place - int(self.ends[number]) + len(part)]


Cuts: TypeAlias = CutSet | IndexedCuts  # in memory, or read on demand


def durations_of(cuts: Cuts | JoinedCuts) -> np.ndarray:
    """Return the durations in seconds, (n,)."""
    return _values(cuts, lambda index: index.durations, lambda cut: cut.duration)


def rates_of(cuts: Cuts | JoinedCuts) -> np.ndarray:
    """Return the sample rates in Hz, (n,)."""
    return _values(cuts, lambda index: index.of_rows("rate"), lambda cut: cut.sampling_rate)


def _values(
    cuts: Cuts | JoinedCuts,
    of_index: Callable[[IndexedCuts], np.ndarray],
    of_cut: Callable[[Cut], float],
) -> np.ndarray:
    parts = cuts.parts if isinstance(cuts, JoinedCuts) else [cuts]
    found = [
        of_index(part) if isinstance(part, IndexedCuts) else np.array([*map(of_cut, part)])
        for part in parts
    ]
    return found[0] if len(found) == 1 else np.concatenate(found)


def at_speed(durations: np.ndarray, rates: np.ndarray, factor: float) -> np.ndarray:
    """Return the durations (n,) at another speed, in whole samples, rounded like lhotse's."""
    if factor == 1.0:
        return np.array(durations)
    samples = np.floor(np.round(durations * rates, 8) + 0.5)
    samples = np.round(samples / factor, 8)
    samples = np.floor(samples + 0.5) if factor > 1.0 else np.ceil(samples - 0.5)
    return samples / rates
