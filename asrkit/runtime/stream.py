"""A stream of audio on an engine: its past, the data that waits for the network, its result."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np

from asrkit import audio
from asrkit.backends.backend import State, divided, joined, restored, stored
from asrkit.runtime.engine import Engine, SpeechState
from asrkit.runtime.long_audio import Windows
from asrkit.runtime.results import Segment
from asrkit.runtime.transcript import DecodingOptions, Transcript, TranscriptValue, searched
from asrkit.runtime.words import Clock

MOST_WAITING = 100  # feature frames whose samples may wait: a chunk's, at most a second


class StreamValue(NamedTuple):
    """The stored values of a stream; its other attributes are derived from these."""

    packets: np.ndarray
    resampler: audio.ResamplerPast
    past: np.ndarray
    samples: np.ndarray
    feats: np.ndarray  # frames that no step has processed
    kept: np.ndarray  # frames before them, which the second pass needs
    detector: SpeechState | None
    speech: tuple[bool, ...]
    transcript: TranscriptValue
    ended_feats: tuple[np.ndarray, ...]
    state: tuple[np.ndarray, ...]
    ended: bool


class Stream:
    """A stream, whose steps `run` computes, or `Steps` together with those of other streams.

        stream.append(samples)
        feats = stream.feats(stream.due)  # (T, F)
        stream.advance(emissions, state, len(feats))  # outputs of a step over feats
        while stream.ended_feats:
            stream.append_second_pass(emissions)  # outputs over ended_feats[0]

    Args:
        decoding: options that determine how the head's emissions become text.
        sample_rate: rate of the samples that `append` will receive, Hz.
        before: number of samples of the session before the stream.
        segments: segments of the session, to which the stream appends its own.

    Attributes:
        state: the network's past; without a row after the last step.
        second: engine of the second pass; None with one pass.
        ended_feats: features (T, F) of each span that waits for the second pass.
        result: result so far.
        ended: whether no more samples will be appended.
        error: exception that ended the stream early, or None.
        over: whether the stream is final, failed or cancelled.

    Raises:
        AudioError: for a sample rate out of range.
    """

    def __init__(
        self,
        engine: Engine,
        decoding: DecodingOptions,
        sample_rate: int,
        before: int = 0,
        segments: list[Segment] | None = None,
    ) -> None:
        spec, frontend = engine.spec, engine.frontend
        self.engine, self.before = engine, before
        self._chunk, self._ahead = spec.chunk_frames, spec.ahead_frames  # feature frames
        self._resampler = audio.Resampler(sample_rate, dtype=spec.dtype)
        self.sample_rate = self._resampler.rate
        self._unresampled = self._resampler.start()
        self._packets = np.zeros(0, dtype=spec.dtype)  # (n,) samples that wait for the resampler
        self._past = frontend.start(1)  # (1, P)
        self._samples = self._past[:, :0]  # (1, N) samples that wait for the frontend
        self._no_feats = np.zeros((0, spec.num_mels), spec.dtype)
        self._feats = FeatureQueue(self._no_feats)
        self._next = 0  # number of the first feature frame that no step has processed
        self._speech_state = engine.detector.start() if engine.detector else None
        # Flags for future encoder frames, the first of which may start before the samples.
        self._speech = [False] * -(-spec.rate.lead_frames // spec.rate.factor)
        # Whole milliseconds; halves are rounded up.
        before_ms = (2000 * before + self.sample_rate) // (2 * self.sample_rate)
        clock = Clock(spec.rate.frame_ms, frontend.lead_ms, before_ms)
        self.transcript = Transcript(decoding, clock, spec.context_name, segments)
        self._windows: Windows | None = None
        if spec.context.full:
            self._windows = Windows(spec.rate, decoding.search.quiet)
        self.second = decoding.second and decoding.second.engine
        self.ended_feats: deque[np.ndarray] = deque()
        self.ended = False
        self.state = engine.init_state(1)
        self.error: BaseException | None = None
        self.over = False
        self.update_result()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Change the stream. An exception in the block, also Ctrl-C, ends the stream.

        The input may have been processed only in part.
        """
        try:
            yield
        except BaseException as error:
            self.error = error
            self.cancel()
            raise

    def cancel(self) -> None:
        """End the stream without a result and drop all waiting data."""
        self.over = self.ended = True
        self._feats = FeatureQueue(self._no_feats)
        self.ended_feats.clear()
        self._next, self._past = 0, self._past[:, :0].copy()
        self._samples, self._packets = self._past, self._packets[:0].copy()
        self.state = self.engine.init_state(0)

    def finish(self) -> None:
        """End the stream: no more samples will be appended."""
        self.append(np.zeros(0, dtype=np.float32), last=True)

    def append(self, samples: np.ndarray, last: bool = False) -> None:
        """Append mono samples; they become feature frames that wait for the network.

        Small packets are joined until they may complete a chunk, as each call has a fixed cost.
        """
        with self.changing():
            self._packets = np.concatenate(
                [self._packets, samples], dtype=self._packets.dtype, casting="same_kind"
            )
            # samples at 16 kHz that all appended ones can become
            most = -(-self.num_appended * audio.SAMPLE_RATE // self.sample_rate)
            if last or self._completes(most - self._unresampled.given):
                self._resample(last)
                if last or self._completes(0):
                    self._extract(last)
            self.ended = last
            if last and self._leave_rest():
                self._end()

    def run(self) -> None:
        """Compute all due steps of both passes alone; raise the exception that ends the stream."""
        steps = Steps()
        while self.due or self.ended_feats:
            with self.changing():
                if self.ended_feats:
                    steps.second_pass([self])
                else:
                    steps.first_pass([self], [self.due])
                if self.error is not None:
                    raise self.error

    def _completes(self, more: int) -> bool:
        """Return whether `more` samples at 16 kHz complete a chunk, or enough frames to process."""
        waiting = self._past.shape[1] + self._samples.shape[1] + more
        part = (self._pending - self._ahead) % self._chunk
        wanted = min(self._chunk - part, MOST_WAITING)
        return (waiting - self.engine.frontend.frame_size) // audio.HOP + 1 >= wanted

    def _resample(self, last: bool) -> None:
        """Resample all packets to 16 kHz; the result waits for the frontend."""
        samples, self._unresampled = self._resampler.step(self._unresampled, self._packets, last)
        self._packets = self._packets[:0].copy()
        if self.engine.detector is not None and self._speech_state is not None:
            self._speech_state, speech = self.engine.detector.step(self._speech_state, samples)
            self._speech += speech
        self._samples = np.concatenate([self._samples, samples[None]], axis=1)

    def _extract(self, last: bool) -> None:
        """Turn the samples that wait for the frontend into frames that wait for the network."""
        if last:
            samples = np.concatenate([self._past, self._samples], axis=1)
            padded = self.engine.frontend.ended(samples, np.array([samples.shape[1]]))
            self._samples = padded[:, self._past.shape[1] :]
        feats, past = self.engine.frontend(self._samples, self._past)
        self._past = past.copy()  # a view would keep all samples in memory
        self._samples = self._samples[:, :0].copy()
        self._feats.append(feats[0])

    @property
    def due(self) -> int:
        """Number of feature frames that a step can process now.

        These are the frames of whole chunks with their right context, or all frames after the end.
        In full context: a window, see `Windows`. 0 if they make no encoder frame.
        """
        if self._windows is not None:
            window = self._windows.whole(self.transcript.frame, self._pending)
            if window:
                return window
        if self.ended:
            return self._pending if self.engine.spec.rate.num_frames(self._pending) else 0
        whole = self._pending - self._ahead
        whole -= whole % self._chunk
        return whole + self._ahead if whole > 0 else 0

    @property
    def _pending(self) -> int:
        """Number of feature frames that no step has processed."""
        return self._feats.end - self._next

    def feats(self, frames: int) -> np.ndarray:
        """Return the first `frames` waiting feature frames, (T, F). They stay until `advance`."""
        return self._feats.read(self._next, self._next + frames)

    def advance(
        self, emissions: np.ndarray, state: State, num_feats: int, after: Any = None
    ) -> None:
        """Advance by a step of the network over `num_feats` feature frames.

        Frames that are right context of the step, or left context of the next window, are kept
        for the next step.

        Args:
            emissions: (E, V or D), output of the head.
            state: the network's past after these frames.
            num_feats: number of feature frames of the step.
            after: state of the live segment's search after the frames, if it is known; never in
                full context.
        """
        factor = self.engine.spec.rate.factor
        if self._windows is None:
            num_feats = min(num_feats, factor * len(emissions))
        else:
            start, last = self.transcript.frame, num_feats == self._pending
            emissions = self._windows.text(emissions, start, last)
            if not last:
                end = start + len(emissions)
                num_feats = factor * (self._windows.first(end) - self._windows.first(start))
                state = self.engine.init_state(1)
        self._next += num_feats
        self.state, count = state, len(emissions)
        self.transcript.append(emissions, self._duration, self._speech[:count], after)
        del self._speech[:count]
        if self.ended and self._leave_rest():
            self._end()
        else:
            self._move_on()

    def _leave_rest(self) -> bool:
        """Leave the last frames to the second pass where it alone decides about them.

        Return whether no step of the first pass follows after the end of the samples.
        """
        frames = self.engine.spec.rate.num_frames(self._pending)
        if self.transcript.skip(frames):
            self._next += min(self.engine.spec.rate.factor * frames, self._pending)
            del self._speech[:frames]
        return not self.due

    def append_second_pass(self, emissions: np.ndarray, after: Any = None) -> None:
        """Append the second pass's emissions (E, V or D) for `ended_feats[0]`.

        Args:
            after: state of the second pass's search after the emissions, if it is known.
        """
        self.ended_feats.popleft()
        self.transcript.append_second_pass(emissions, self._duration, after)
        self._move_on()

    def _end(self) -> None:
        """End the text: no step of the first pass follows."""
        self.state = self.engine.init_state(0)
        self.transcript.finish(self._duration)
        self._move_on()
        start = self._feats.start
        self._feats = FeatureQueue(self._feats.read(start, self._next), start)

    def _move_on(self) -> None:
        """Update the result, and read the features of new spans."""
        rate = self.engine.spec.rate
        for span, _ in list(self.transcript.waiting)[len(self.ended_feats) :]:
            last = rate.factor * span.last + min(self._pending, rate.lookahead)
            self.ended_feats.append(self._feats.read(rate.factor * span.first, last))
        self._feats.drop(self._first_kept)
        self.update_result()

    def update_result(self) -> None:
        self.result = self.transcript.partial()
        self.over = self.over or self.result.is_final

    @property
    def _first_kept(self) -> int:
        """Number of the first feature frame that a step of either pass needs."""
        if self.second is None:
            return self._next
        needed = self.engine.spec.rate.factor * self.transcript.spans.first_needed
        return min(needed, self._next)

    @property
    def num_appended(self) -> int:
        """Number of samples appended so far."""
        return self._unresampled.taken + len(self._packets)

    @property
    def seconds_processed(self) -> float:
        """Seconds of the session's audio that the network has processed."""
        appended, transcript = self.num_appended / self.sample_rate, self.transcript
        if not self.over:
            clock = transcript.clock._replace(before_ms=0)
            appended = min(appended, clock.seconds(transcript.frame))
        return self.before / self.sample_rate + appended

    @property
    def _duration(self) -> float:
        return duration(self._unresampled.given, self.transcript.clock.before_ms)

    @property
    def value(self) -> StreamValue:
        """Return the value from which `restore` continues a stream with the same options."""
        return StreamValue(
            self._packets, self._unresampled, self._past, self._samples, self.feats(self._pending),
            self._feats.read(self._first_kept, self._next), self._speech_state,
            tuple(self._speech), self.transcript.value, tuple(self.ended_feats),
            stored(self.state), self.ended,
        )  # fmt: skip

    def restore(self, value: StreamValue) -> None:
        """Restore the value of a stream with the same options."""
        self._packets, self._unresampled, self.ended = value.packets, value.resampler, value.ended
        self._past, self._samples = value.past, value.samples
        self._speech_state, self._speech = value.detector, [*value.speech]
        self.transcript.restore(value.transcript)
        self.ended_feats = deque(value.ended_feats)
        self.state = restored(value.state, self.state)
        first = self.engine.spec.rate.factor * self.transcript.spans.first_needed
        self._feats = FeatureQueue(value.kept, first)
        self._feats.append(value.feats)
        self._next = first + len(value.kept)
        self.update_result()


class Steps:
    """Steps of the network, each for one or more streams at any place in their audio.

    An exception of a stream's search or postprocess ends this stream, as its `error`. An exception
    of the network is raised, and no stream has changed.
    """

    def __init__(self) -> None:
        # Streams that shared their last step: their states are views of one state.
        self._joined: dict[tuple[Stream, ...], State] = {}

    def first_pass(self, rows: Sequence[Stream], sizes: Sequence[int]) -> None:
        """Compute a step over the next feature frames of each stream.

        Args:
            rows: streams on one engine.
            sizes: number of feature frames of each stream.
        """
        feats = [row.feats(size) for row, size in zip(rows, sizes, strict=True)]
        emissions, after_all = rows[0].engine.step_of(feats, self._join(rows))
        self.separate(rows, moving=rows)  # only now: a failed step must not change any stream
        states = divided(after_all) if len(rows) > 1 else [after_all]
        after = searched([row.transcript.live for row in rows], emissions)
        for row, *output in zip(rows, emissions, states, sizes, after, strict=True):
            with suppress(Exception), row.changing():
                row.advance(*output)
        if len(rows) > 1:
            self._joined[tuple(rows)] = after_all
        if any(row.over or row.state is not state for row, state in zip(rows, states, strict=True)):
            self.separate(rows)

    def second_pass(self, rows: Sequence[Stream]) -> None:
        """Compute a step of the second pass over the first `ended_feats` of each stream.

        Args:
            rows: streams whose second pass has the same backend.
        """
        engine = rows[0].second
        assert engine is not None
        feats = [row.ended_feats[0] for row in rows]
        emissions, _ = engine.step_of(feats, engine.init_state(len(rows)))
        transcripts = [row.transcript for row in rows]
        segments = [transcript.final for transcript in transcripts if transcript.final]
        spans = [transcript.waiting[0][0] for transcript in transcripts]
        texts = [span.of(of_row) for span, of_row in zip(spans, emissions, strict=True)]
        after = searched(segments, texts)
        for row, *output in zip(rows, emissions, after, strict=True):
            with suppress(Exception), row.changing():
                row.append_second_pass(*output)

    def separate(self, streams: Sequence[Stream], moving: Sequence[Stream] = ()) -> None:
        """Copy the states of streams that shared their last step with one of `streams`.

        A view would keep the states of all in memory as long as the slowest stream lives. Streams
        in `moving` are about to get new states and need no copy.
        """
        for rows in [rows for rows in self._joined if not set(rows).isdisjoint(streams)]:
            del self._joined[rows]
            for row in set(rows).difference(moving):
                row.state = joined([row.state])

    def _join(self, rows: Sequence[Stream]) -> State:
        """Return the states of the streams as the state of a batch."""
        if len(rows) == 1:
            return rows[0].state
        known = self._joined.get(tuple(rows))  # these streams also shared their last step
        return joined([row.state for row in rows]) if known is None else known


class FeatureQueue:
    """Feature frames by their number in the stream, from the oldest that is still needed.

    Attributes:
        start: number of the first frame.
        end: number of the next frame to append.
    """

    def __init__(self, feats: np.ndarray, start: int = 0) -> None:
        self._parts, self.start, self.end = [feats], start, start + len(feats)

    def append(self, feats: np.ndarray) -> None:
        """Append (T, F)."""
        self._parts = [*self._parts, feats] if self.end > self.start else [feats]
        self.end += len(feats)

    def read(self, first: int, last: int) -> np.ndarray:
        """Return a view of (T, F): frames first … last-1, or up to the end."""
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        return self._parts[0][first - self.start : last - self.start]

    def drop(self, before: int) -> None:
        """Drop the frames before this number, without a copy of all others each time."""
        self.start, rest = before, self.read(before, self.end)
        is_small = rest.base is not None and 2 * rest.nbytes < rest.base.nbytes
        self._parts = [rest.copy() if is_small else rest]


def duration(num_samples: int, before_ms: int = 0) -> float:
    """Return the whole milliseconds up to the last sample at 16 kHz, in seconds of the session.

    No word ends after them. Resampling may add a part of a sample, 0.06 ms at most.

    Args:
        num_samples: samples of the stream.
        before_ms: milliseconds of the session before the stream.
    """
    return (before_ms + num_samples * 1000 // audio.SAMPLE_RATE) / 1000
