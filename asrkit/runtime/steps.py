"""The steps of streams on one network. A session is a batch of one."""

from collections.abc import Sequence
from contextlib import suppress

import torch

from asrkit.model import EncoderState
from asrkit.runtime.open_segment import searched
from asrkit.runtime.stream import Stream


class Steps:
    """Steps of the network, each for one or more streams at any place in their audio.

    An exception of a stream's search or postprocess ends this stream, as its `error`. An exception
    of the network is raised, and no stream has changed.
    """

    def __init__(self) -> None:
        # Streams that shared their last step: their states are views of one state.
        self._joined: dict[tuple[Stream, ...], EncoderState] = {}

    def first_pass(self, rows: Sequence[Stream], sizes: Sequence[int]) -> None:
        """Compute a step over the next feature frames of each stream.

        Args:
            rows: streams on one engine.
            sizes: number of feature frames of each stream.
        """
        feats = [row.feats(size) for row, size in zip(rows, sizes, strict=True)]
        frames, joined = rows[0].engine.step_of(feats, self._join(rows))
        self.separate(rows, moving=rows)  # only now: a failed step must not change any stream
        states = [joined]
        if len(rows) > 1:
            fields = (field.split(1) for field in joined)
            states = [EncoderState(*each) for each in zip(*fields, strict=True)]
        found = searched([row.open for row in rows], frames)
        each = zip(rows, frames, states, sizes, found, strict=True)
        for row, own, state, size, after in each:
            with suppress(Exception), row.changing():
                row.advance(own, state, size, after)
        if len(rows) > 1:
            self._joined[tuple(rows)] = joined
        if any(row.over or row.state is not own for row, own in zip(rows, states, strict=True)):
            self.separate(rows)

    def second_pass(self, rows: Sequence[Stream]) -> None:
        """Compute a step of the second pass over the first `ended_feats` of each stream.

        Args:
            rows: streams whose second pass has the same backend.
        """
        engine = rows[0].second
        assert engine is not None
        frames, _ = engine.step_of(
            [row.ended_feats[0] for row in rows], engine.init_state(len(rows))
        )
        segments = [row.second_search(own) for row, own in zip(rows, frames, strict=True)]
        found = searched(*zip(*segments, strict=True))
        for row, own, after in zip(rows, frames, found, strict=True):
            with suppress(Exception), row.changing():
                row.finalize(own, after)

    def separate(self, streams: Sequence[Stream], moving: Sequence[Stream] = ()) -> None:
        """Copy the states of streams that shared their last step with one of `streams`.

        A view would keep the states of all in memory as long as the slowest stream lives. Streams
        in `moving` are about to get new states and need no copy.
        """
        for rows in [rows for rows in self._joined if not set(rows).isdisjoint(streams)]:
            del self._joined[rows]
            for row in set(rows).difference(moving):
                row.state = EncoderState(*(each.clone() for each in row.state))

    def _join(self, rows: Sequence[Stream]) -> EncoderState:
        """Return the states of the streams as the state of a batch."""
        if len(rows) == 1:
            return rows[0].state
        joined = self._joined.get(tuple(rows))
        if joined is not None:  # these streams also shared their last step
            return joined
        return EncoderState(*map(torch.cat, zip(*(row.state for row in rows), strict=True)))
