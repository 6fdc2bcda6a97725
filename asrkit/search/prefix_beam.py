"""CTC prefix beam search: the likeliest token sequences, each scored by the sum of its paths.

- A prefix is a token sequence. Paths that end in a blank and paths that end in the last token are
  summed separately, because the same token can follow as a new one only after a blank.
- A prefix outside the beam can be reached only from its parent, so its score is known before it is
  created. Only tokens that can enter the beam are tried; the result is the same as with all tokens.
- Probabilities are not stored as logarithms, because Python multiplies and adds fastest. They are
  rescaled by powers of two, which is exact; `log_scale` has the logarithm of the scale.
- A language model's factor is multiplied into a prefix when its last token is added. `best` and
  `nbest` compute the factor of the end of the text, which is not part of the state.
- The times of a prefix are those of its likeliest path, which is tracked beside the sum. Among
  paths that differ only by rounding, it is the one whose last token ends first.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import numpy as np

from asrkit.search.backtrace import (
    NOTHING_STABLE,
    Chains,
    Path,
    StablePrefix,
    backtrace,
    chains,
    extend_stable,
    paths_of,
)
from asrkit.search.base import CtcSearch
from asrkit.search.beam import TIE, BeamSearch, in_order, is_due, log


class Prefix(NamedTuple):
    """A token sequence of the beam: probabilities of its paths, and the likeliest paths.

    A path is None if it does not exist, and for the empty sequence.
    """

    total: float  # probability of all paths
    best: float  # probability of the likeliest path
    path: Path | None  # the likeliest path
    blank: float  # the same three for the paths that end in a blank
    best_blank: float
    blank_path: Path | None
    label: float  # the same three for the paths that end in the last token
    best_label: float
    label_path: Path | None
    token: int  # the last token; NO_TOKEN for the empty sequence
    key: int  # 64-bit hash: equal sequences have equal keys
    parent: int  # key of the sequence without the last token
    context: Any  # state of the language model
    factor: float  # the language model's factor of the last token


class PrefixBeamState(NamedTuple):
    beam: tuple[Prefix, ...]  # the likeliest first
    log_scale: float  # natural logarithm of the factor of each total
    stable: StablePrefix
    frame: int  # number of frames processed
    quiet: tuple[bool, ...] = ()
    ends: tuple[float, ...] = ()


class PrefixBeamValue(NamedTuple):
    """A state without the derivable parts: hashes, and the fusion's states and factors."""

    probabilities: tuple[tuple[float, float, float, float, float, float], ...]
    paths: Chains  # three for each prefix: likeliest, ending in a blank, ending in the last token
    log_scale: float
    frame: int


NO_TOKEN = -1
EMPTY = Prefix(1.0, 1.0, None, 1.0, 1.0, None, 0.0, 0.0, None, NO_TOKEN, 0, 0, None, 1.0)
SMALL, LARGE = 2.0**-500, 2.0**500  # probabilities outside are rescaled
MOST_UP = 1000  # largest exponent of a factor, which a float can hold
ROUNDING = 1e-9  # larger than the rounding errors of the logarithms

by_total, by_key = itemgetter(0), attrgetter("key")
as_tuple = tuple.__new__  # as_tuple(Prefix, (…)) takes half the time of Prefix(…)


class PrefixBeamSearch(CtcSearch, BeamSearch):
    """Incremental prefix beam search of CTC (Graves and Jaitly 2014; Hannun et al. 2014)."""

    Value = PrefixBeamValue

    def start(self) -> PrefixBeamState:
        empty = EMPTY._replace(context=self.fusion.start())
        return PrefixBeamState((empty,), 0.0, NOTHING_STABLE, 0)

    def step(self, state: PrefixBeamState, log_probs: np.ndarray) -> PrefixBeamState:
        """Return the state after (E, V) more frames of log-probabilities.

        Raises:
            ValueError: for a frame after which every prefix has probability 0.
        """
        beam: Sequence[Prefix]
        (beam, log_scale, stable, frame, *_), size = state, self.beam
        rows = self.readable(log_probs).astype(np.float64)  # (E, V)
        labels = rows.copy()
        labels[:, self.blank] = -np.inf
        blanks, tops = rows[:, self.blank].tolist(), labels.max(axis=1).tolist()
        for row, label_row, log_blank, log_top in zip(rows, labels, blanks, tops, strict=True):
            if log_blank > self.log_skip_blank:
                beam = with_blank(beam)
                log_scale += log_blank
            else:
                known = {prefix.key: prefix for prefix in beam}
                after = unextended(beam, known, frame, memoryview(row), math.exp(log_blank))
                floor = min(map(by_total, after)) / TIE if len(after) >= size else 0.0
                required = log(floor / (beam[0].total * self.ceiling))
                lowest = max(min(self.log_min_token, log_top), required)
                if log_top >= lowest:
                    after += self.extended(beam, known, frame, floor, likely(label_row, lowest))
                after.sort(key=by_total, reverse=True)
                if len(after) > size and after[size - 1].total <= after[size].total * TIE:
                    after = ordered(after)
                beam, log_scale = rescaled(after[:size], log_scale)
            frame += 1
        if any(a.total <= b.total * TIE for a, b in pairwise(beam)):  # `ordered` takes longer
            beam = ordered(beam)
        if is_due(state.frame, frame):
            stable = extend_stable(beam[0].path, fixed_links(beam), stable)
        quiet = tuple((rows.argmax(axis=1) == self.blank).tolist())
        return PrefixBeamState(tuple(beam), log_scale, stable, frame, quiet, self.ends(log_probs))

    def to_value(self, state: PrefixBeamState) -> PrefixBeamValue:
        beam = state.beam
        paths = [path for each in beam for path in (each.path, each.blank_path, each.label_path)]
        return PrefixBeamValue(
            tuple((p.total, p.best, p.blank, p.best_blank, p.label, p.best_label) for p in beam),
            chains(paths, state.stable), state.log_scale, state.frame,
        )  # fmt: skip

    def from_value(self, value: PrefixBeamValue) -> PrefixBeamState:
        paths, stable = paths_of(value.paths)
        beam = []
        rows = zip(value.probabilities, paths[::3], paths[1::3], paths[2::3], strict=True)
        for (total, best, blank, best_blank, label, best_label), *three in rows:
            path, blank_path, label_path = three
            token, key, parent, context, factor = NO_TOKEN, 0, 0, self.fusion.start(), 1.0
            for token in backtrace(path, stable).tokens:
                key, parent = hash((key, token)), key
                context, gain = self.fusion.step(context, token)
                factor = math.exp(gain)
            beam.append(Prefix(total, best, path, blank, best_blank, blank_path, label, best_label,
                               label_path, token, key, parent, context, factor))  # fmt: skip
        return PrefixBeamState(tuple(beam), value.log_scale, stable, value.frame)

    def score(self, state: PrefixBeamState, prefix: Prefix) -> float:
        return state.log_scale + log(prefix.total)

    def extended(
        self,
        beam: Sequence[Prefix],
        known: dict[int, Prefix],
        frame: int,
        floor: float,
        tokens: list[tuple[int, float]],
    ) -> list[Prefix]:
        """Return new prefixes, which extend one of the beam by a token and exceed the floor.

        Args:
            floor: only prefixes with larger totals can enter the beam.
        """
        new = []
        for prefix in beam:
            parent, reach = prefix.key, prefix.total * self.ceiling
            for token, prob in tokens:
                if reach * prob <= floor:
                    break  # the following tokens are less likely
                entry, best, before = predecessors(prefix, token)
                key = hash((parent, token))
                if entry * self.ceiling * prob <= floor or key in known:
                    continue
                context, gain = self.fusion.step(prefix.context, token)
                factor = math.exp(gain)
                total, best = entry * prob * factor, best * prob * factor
                if total > floor:
                    path = (before, token, frame, frame + 1, prob)
                    new.append(
                        as_tuple(Prefix, (total, best, path, 0.0, 0.0, None, total, best, path,
                                          token, key, parent, context, factor))
                    )  # fmt: skip
        return new


def likely(row: np.ndarray, lowest: float) -> list[tuple[int, float]]:
    """Return tokens of at least this log-probability, with probabilities, the likeliest first."""
    (tokens,) = (row >= lowest - ROUNDING).nonzero()
    ranked = sorted(zip(row[tokens].tolist(), tokens.tolist(), strict=True), reverse=True)
    return [(token, math.exp(log_prob)) for log_prob, token in ranked]


def unextended(
    beam: Sequence[Prefix], known: dict[int, Prefix], frame: int, row: memoryview, blank_prob: float
) -> list[Prefix]:
    """Return the prefixes of the beam after a frame (V,) that is a blank or their last token."""
    exp = math.exp
    stays = []
    for prefix in beam:
        (total, best, path, _, _, _, label, best_label, label_path,
         token, key, parent, context, factor) = prefix  # fmt: skip
        blank, best_blank = total * blank_prob, best * blank_prob
        blank_path = path
        if token != NO_TOKEN:
            prob = exp(row[token])
            label, best_label = label * prob, best_label * prob
            if label_path is not None:
                before, _, first, _, highest = label_path
                label_path = (before, token, first, frame + 1, prob if prob > highest else highest)
            if parent in known:  # paths of the parent to which this frame adds the token
                entry, best_entry, before = predecessors(known[parent], token)
                label += entry * prob * factor
                if best_entry * prob * factor > best_label * TIE:
                    best_label = best_entry * prob * factor
                    label_path = (before, token, frame, frame + 1, prob)
        if best_label > best_blank * TIE:
            best, path = best_label, label_path
        else:
            best = best_blank
        stays.append(
            as_tuple(Prefix, (blank + label, best, path, blank, best_blank, blank_path,
                              label, best_label, label_path, token, key, parent, context, factor))
        )  # fmt: skip
    return stays


def predecessors(prefix: Prefix, token: int) -> tuple[float, float, Path | None]:
    """Return the paths that a token can extend; for a repeated token, those after a blank."""
    if token == prefix.token:
        return prefix.blank, prefix.best_blank, prefix.blank_path
    return prefix.total, prefix.best, prefix.path


def ordered(prefixes: Iterable[Prefix]) -> list[Prefix]:
    """Sort prefixes, the likeliest first; equally likely ones by their keys."""
    return in_order(sorted(prefixes, key=by_key), lambda prefix: log(prefix.total))


def with_blank(beam: Sequence[Prefix]) -> Sequence[Prefix]:
    """Return the prefixes after a certain blank."""
    if all(prefix.label_path is None for prefix in beam):
        return beam
    return [
        prefix._replace(
            blank=prefix.total, best_blank=prefix.best, blank_path=prefix.path,
            label=0.0, best_label=0.0, label_path=None,
        )
        for prefix in beam
    ]  # fmt: skip


def rescaled(beam: list[Prefix], log_scale: float) -> tuple[list[Prefix], float]:
    """Rescale probabilities to avoid underflow, and drop prefixes of probability 0."""
    while beam and not beam[-1].total > 0.0:
        beam.pop()
    if not beam:
        raise ValueError(
            "every hypothesis has probability 0: a frame of log_probs is not a distribution"
        )
    if SMALL < beam[0].total < LARGE and SMALL < beam[0].best < LARGE:
        return beam, log_scale
    best = max(prefix.best for prefix in beam)
    exponent, best_exponent = (max(-MOST_UP, math.frexp(each)[1]) for each in (beam[0].total, best))
    up, best_up = 2.0**-exponent, 2.0**-best_exponent
    beam = [
        prefix._replace(
            total=prefix.total * up, blank=prefix.blank * up, label=prefix.label * up,
            best=prefix.best * best_up, best_blank=prefix.best_blank * best_up,
            best_label=prefix.best_label * best_up,
        )
        for prefix in beam
    ]  # fmt: skip
    return beam, log_scale + exponent * math.log(2.0)


def fixed_links(beam: Sequence[Prefix]) -> Iterator[Path | None]:
    """Yield the last unchangeable link of each likeliest path."""
    for prefix in beam:
        if prefix.blank_path is not None or prefix.token == NO_TOKEN:
            yield prefix.blank_path
        if prefix.label_path is not None:  # the last token's end may still change
            yield prefix.label_path[0]
