"""Beam search for transducers: the likeliest token sequences, each the sum of its alignments.

An alignment writes labels in a frame, `max_symbols` at most, and then the blank. The search goes
from frame to frame, so that the end of a chunk or of a stream changes nothing.

- In a frame, each round appends the blank or one label to every sequence that has no blank yet.
  Sequences that got the blank wait for the frame's end, where equal ones are summed. The round
  keeps the `beam` likeliest of both kinds. After `max_symbols` labels only the blank follows.
- Rounds are the expansions of time-synchronous decoding (Saon et al. 2020, algorithm 1), which
  models that write several labels a frame need. Both kinds share one beam as in the modified beam
  search of icefall and sherpa-onnx, which has a single label a frame, and in NeMo's malsd_batch
  (Grigoryan et al. 2025, arXiv 2506.00185), which also forces and counts the blank after
  `max_symbols`. So a round whose blanks are likelier than all labels is the frame's last, and a
  beam of 1 is greedy search. Alignment-length synchronous decoding (the same paper of Saon et al.)
  compares sequences at different frames, and would depend on where a chunk ends.
- A language model or hotwords add the scores of labels and nothing to a blank (Kannan et al. 2018;
  "no_score" in NeMo, the rule of icefall and sherpa-onnx). A sequence's score is therefore
  log P(labels | audio) + fusion(labels), as in CTC's prefix beam search: it does not depend on the
  alignment, and a broken hotword is taken back exactly. NeMo's default multiplies the blank's
  log-probability by 1 + weight, which needs a model of tokens; the search has models of words too.
- Only labels that can enter the beam are tried; the result is the same as with all labels.
"""

import math
from collections.abc import Generator, Iterable, Sequence
from operator import attrgetter
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
from asrkit.search.base import log_softmax, penalize_blank
from asrkit.search.beam import LOG_TIE, BeamSearch, in_order, is_due
from asrkit.search.transducer_greedy import Transducer


class Prefix(NamedTuple):
    """A token sequence of the beam. Scores are natural logarithms with those of the fusion."""

    score: float  # sum over all alignments
    best: float  # score of the most probable alignment
    path: Path | None  # the most probable alignment; None for the empty sequence
    key: int  # 64-bit hash: equal sequences have equal keys
    context: Any  # state of the fusion
    row: int  # row of the sequence in the past


class Past(NamedTuple):
    """The predictor's past of some sequences, a row each."""

    output: np.ndarray  # (N, J), after the last label
    state: tuple[np.ndarray, ...]  # each (N, …)


class TransducerBeamState(NamedTuple):
    beam: tuple[Prefix, ...]  # the most probable first; prefix i has row i
    past: Past
    stable: StablePrefix
    frame: int  # number of frames processed
    quiet: tuple[bool, ...] = ()  # whether a frame adds no label to the likeliest sequence
    ends: tuple[float, ...] = ()


class TransducerBeamValue(NamedTuple):
    """A state without the derivable parts: hashes, and the fusion's states."""

    scores: tuple[tuple[float, float], ...]  # `score` and `best` of each prefix
    paths: Chains
    past: Past
    frame: int


class Round(NamedTuple):
    """The question of a search: the log-probabilities of its next round."""

    frame: np.ndarray  # (J,), projected
    past: Past
    longer: tuple[Prefix, ...] = ()  # sequences to which a label was added; if none, all of `past`


Answer = tuple[Past, np.ndarray]  # of the sequences of a round; log-probabilities (N, V), float64
Searching = Generator[Round, Answer, TransducerBeamState]


class TransducerBeamSearch(BeamSearch):
    """Incremental, time-synchronous beam search of a transducer.

    Args:
        head: predictor and joiner; `bound` sets them if they are None.
        options: arguments of `BeamSearch`. Probabilities of a frame depend on the sequence: after
            one whose blank is a certain blank, no labels are tried.
    """

    Value = TransducerBeamValue

    def __init__(self, head: Transducer | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.head = head

    def start(self) -> TransducerBeamState:
        output, state = self.head.predict(np.array([self.blank]), self.head.start(1))
        empty = Prefix(0.0, 0.0, None, 0, self.fusion.start(), 0)
        return TransducerBeamState((empty,), Past(output, state), NOTHING_STABLE, 0)

    def step_all(
        self, states: Sequence[TransducerBeamState], frames: Sequence[np.ndarray]
    ) -> list[TransducerBeamState]:
        """Return the states of B streams after (E, D) more frames; E may differ between streams.

        In each round all streams, at any place, share a call of the predictor and of the joiner.

        Raises:
            ValueError: for a frame after which every sequence has probability 0.
        """
        rows = divided(self.head.project(np.concatenate([*frames])), [*map(len, frames)])
        searches = [self.searched(*each) for each in zip(states, rows, strict=True)]
        after: list[TransducerBeamState] = [*states]
        answers: dict[int, Any] = dict.fromkeys(range(len(searches)))
        while True:
            rounds = {}
            for i, answer in answers.items():
                try:
                    rounds[i] = searches[i].send(answer)
                except StopIteration as ended:
                    after[i] = ended.value
            if not rounds:
                return after
            answers = dict(zip(rounds, self.answered([*rounds.values()]), strict=True))

    def searched(self, state: TransducerBeamState, frames: np.ndarray) -> Searching:
        """Search projected frames (E, J), and return the state after them."""
        first, quiet, ends = state.frame, list[bool](), list[float]()
        for frame in frames:
            before, state = state.beam[0], (yield from self.after(state, frame))
            is_quiet, end = self.change(before, state.beam[0])
            quiet.append(is_quiet)
            ends.append(end)
        if is_due(first, state.frame):
            paths = [prefix.path for prefix in state.beam]
            state = state._replace(stable=extend_stable(paths[0], paths, state.stable))
        return state._replace(quiet=tuple(quiet), ends=tuple(ends))

    def change(self, before: Prefix, after: Prefix) -> tuple[bool, float]:
        """Return whether a frame adds no label, and the probability of an end of turn that it adds.

        Both are those of the likeliest sequences before and after the frame. A sequence may become
        the likeliest some frames after its last label, and only then has anything been said.
        """
        if after.key == before.key:
            return True, 0.0
        (known, _), (last, end) = self.without_end(before.path), self.without_end(after.path)
        return last is None or (known is not None and last[1:3] == known[1:3]), end

    def without_end(self, path: Path | None) -> tuple[Path | None, float]:
        """Return a path without an end of turn after its last label, and the end's probability."""
        if path is None or path[1] != self.end_of_turn:
            return path, 0.0
        return path[0], path[4]

    def after(self, state: TransducerBeamState, frame: np.ndarray) -> Searching:
        """Search a projected frame (J,), and return the state after it."""
        ended: dict[int, Prefix] = {}  # by keys: the sequences that have this frame's blank
        current, rows, pasts = state.beam, 0, list[Past]()
        asked = Round(frame, state.past)
        for count in range(self.head.max_symbols + 1):
            past, log_probs = yield asked
            pasts.append(past)
            for i, blank in enumerate(log_probs[:, self.blank].tolist()):
                score, best = current[i].score + blank, current[i].best + blank
                add_to(ended, current[i]._replace(score=score, best=best, row=rows + i))
            if count == self.head.max_symbols:
                break
            scores = sorted((prefix.score for prefix in ended.values()), reverse=True)
            floor = scores[self.beam - 1] if len(scores) >= self.beam else -math.inf
            longer = self.extended(current, log_probs, floor, state.frame)
            rows += len(current)
            kept = ranked([*ended.values(), *longer])[: self.beam]
            current = tuple(prefix for prefix in kept if ended.get(prefix.key) is not prefix)
            ended = {prefix.key: prefix for prefix in kept if ended.get(prefix.key) is prefix}
            if not current:
                break
            asked = Round(frame, past, current)
        beam = ranked(ended.values())[: self.beam]
        if not beam or not beam[0].score > -math.inf:
            raise ValueError("every hypothesis has probability 0: a frame's logits are not finite")
        past = pasts[0] if len(pasts) == 1 else joined(pasts)
        return TransducerBeamState(
            tuple(prefix._replace(row=i) for i, prefix in enumerate(beam)),
            taken(past, [prefix.row for prefix in beam]), state.stable, state.frame + 1,
        )  # fmt: skip

    def answered(self, rounds: Sequence[Round]) -> list[Answer]:
        """Compute the predictor and the joiner for a round of each stream."""
        pasts = [each.past for each in rounds]
        growing = [i for i, each in enumerate(rounds) if each.longer]
        if growing:
            longer = [rounds[i].longer for i in growing]
            parents = [taken(pasts[i], [each.row for each in rounds[i].longer]) for i in growing]
            tokens = [each.path[1] for prefixes in longer for each in prefixes if each.path]
            state = joined(parents).state
            output, state = self.head.predict(np.array(tokens), state)
            sizes = [*map(len, longer)]
            states = zip(*(divided(each, sizes) for each in state), strict=True)
            for i, *past in zip(growing, divided(output, sizes), states, strict=True):
                pasts[i] = Past(*past)
        sizes = [len(past.output) for past in pasts]
        frames = np.repeat(np.stack([each.frame for each in rounds]), sizes, axis=0)
        logits = self.head.join(frames, np.concatenate([past.output for past in pasts]))
        log_probs = penalize_blank(log_softmax(logits), self.blank, self.blank_penalty)
        return [*zip(pasts, divided(log_probs.astype(np.float64), sizes), strict=True)]

    def extended(
        self, beam: Sequence[Prefix], log_probs: np.ndarray, floor: float, frame: int
    ) -> list[Prefix]:
        """Return the sequences with one more label whose score exceeds the floor.

        Their row is their parent's index in the beam.

        Args:
            beam: sequences without this frame's blank.
            log_probs: (N, V) of these sequences.
            floor: score of the beam's last place; -inf while there are free places.
        """
        new = []
        blanks = log_probs[:, self.blank].tolist()
        labels = log_probs.copy()
        labels[:, self.blank] = -np.inf
        tops = labels.max(axis=1).tolist()
        for i, (prefix, row, blank, top) in enumerate(zip(beam, labels, blanks, tops, strict=True)):
            required = floor - LOG_TIE - prefix.score - self.fusion.ceiling
            lowest = max(min(self.log_min_token, top), required)
            if blank > self.log_skip_blank or top < lowest:
                continue
            for token in (row >= lowest).nonzero()[0].tolist():
                log_prob = float(row[token])
                context, gain = self.fusion.step(prefix.context, token)
                score = prefix.score + log_prob + gain
                if score > floor - LOG_TIE:
                    path = linked(prefix.path, token, frame, math.exp(log_prob))
                    best, key = prefix.best + log_prob + gain, hash((prefix.key, token))
                    new.append(Prefix(score, best, path, key, context, i))
        return new

    def score(self, state: TransducerBeamState, prefix: Prefix) -> float:
        return prefix.score

    def to_value(self, state: TransducerBeamState) -> TransducerBeamValue:
        paths = chains((prefix.path for prefix in state.beam), state.stable)
        scores = tuple((prefix.score, prefix.best) for prefix in state.beam)
        return TransducerBeamValue(scores, paths, state.past, state.frame)

    def from_value(self, value: TransducerBeamValue) -> TransducerBeamState:
        paths, stable = paths_of(value.paths)
        beam = []
        for i, ((score, best), path) in enumerate(zip(value.scores, paths, strict=True)):
            key, context = 0, self.fusion.start()
            for token in backtrace(path, stable).tokens:
                key, (context, _) = hash((key, token)), self.fusion.step(context, token)
            beam.append(Prefix(score, best, path, key, context, i))
        return TransducerBeamState(tuple(beam), value.past, stable, value.frame)


def divided(rows: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    """Divide rows into parts of these sizes."""
    return np.split(rows, np.cumsum(sizes)[:-1])


def ranked(prefixes: Iterable[Prefix]) -> list[Prefix]:
    """Return sequences of a beam, the most probable first.

    A predictor of few labels gives texts the same score that have the same short passages in
    another order.
    """
    return in_order(sorted(prefixes, key=attrgetter("key")), attrgetter("score"))


def add_to(ended: dict[int, Prefix], prefix: Prefix) -> None:
    """Add a sequence to those that have a frame's blank; equal ones are summed."""
    known = ended.get(prefix.key)
    if known is not None:
        likeliest = prefix if prefix.best > known.best + LOG_TIE else known
        score = float(np.logaddexp(known.score, prefix.score))
        prefix = known._replace(score=score, best=likeliest.best, path=likeliest.path)
    ended[prefix.key] = prefix


def linked(path: Path | None, token: int, frame: int, prob: float) -> Path:
    """Append a label to a path. A label ends where the next label of the same frame begins."""
    if path is not None and path[2] == frame:
        before, last, start, _, highest = path
        path = (before, last, start, frame, highest)
    return path, token, frame, frame + 1, prob


def joined(pasts: Sequence[Past]) -> Past:
    """Return the rows of all pasts as one."""
    states = zip(*(past.state for past in pasts), strict=True)
    return Past(np.concatenate([past.output for past in pasts]), tuple(map(np.concatenate, states)))


def taken(past: Past, rows: list[int]) -> Past:
    """Return some rows of a past."""
    if rows == list(range(len(past.output))):
        return past
    return Past(past.output[rows], tuple(each[rows] for each in past.state))
