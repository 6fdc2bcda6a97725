"""A stream of audio on an engine: its past, the data that waits for the network, its result."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from asrkit import audio
from asrkit.model import EncoderState
from asrkit.runtime.engine import Engine
from asrkit.runtime.feature_queue import FeatureQueue
from asrkit.runtime.results import Segment
from asrkit.runtime.stream_value import StreamValue, check
from asrkit.runtime.transcript import DecodingOptions, OpenSegment, Transcript
from asrkit.runtime.vad import SpeechState
from asrkit.runtime.windows import Windows
from asrkit.runtime.words import seconds

MOST_WAITING = 100  # feature frames whose samples may wait: a chunk's, at most a second


class Stream:
    """A stream without the steps of the network, which `Steps` computes for one or more streams.

        with stream.changing():
            stream.append(samples)
            feats = stream.feats(stream.due)  # (T, F)
            stream.advance(frames, state, len(feats))  # outputs of a step over feats
            while stream.ended_feats:
                stream.append_second_pass(frames)  # outputs over ended_feats[0]

    Args:
        decoding: options that determine how the head's frames become text.
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
        self.engine, self.before, self._resets = engine, before, decoding.resets_encoder
        precision = "float64" if engine.spec.dtype == torch.float64 else "float32"
        self._resampler = audio.Resampler(sample_rate, dtype=precision)
        self.sample_rate = self._resampler.rate
        self._unresampled = self._resampler.start()
        self._packets = np.zeros(0, dtype=precision)  # (n,) samples that wait for the resampler
        self._past = engine.frontend.start(1)  # (1, P)
        self._samples = self._past[:, :0]  # (1, N) samples that wait for the frontend
        self._no_feats = self._past.new_zeros(0, engine.spec.num_mels)
        self._feats = FeatureQueue(self._no_feats, engine.spec.chunk_frames)
        self._next = 0  # number of the first feature frame that no step has processed
        self._speech_state: SpeechState | None = None
        if engine.detector is not None:
            self._speech_state = engine.detector.start()
        # Flags for future encoder frames, the first of which may start before the samples.
        self._speech = [False] * -(-engine.spec.rate.lead_frames // engine.spec.rate.factor)
        # Whole milliseconds; halves are rounded up.
        self._before_ms = (2000 * before + self.sample_rate) // (2 * self.sample_rate)
        self._transcript = Transcript(
            decoding, engine.spec.rate.frame_ms, engine.spec.context_name, engine.frontend.lead_ms,
            self._before_ms, segments,
        )  # fmt: skip
        self._windows: Windows | None = None
        if engine.spec.context.full:
            self._windows = Windows(engine.spec.rate, decoding.search.quiet)
        self.second = decoding.second and decoding.second.engine
        self.ended_feats: deque[Tensor] = deque()
        self.ended = False
        self.state = engine.init_state(1)
        self.result = self._transcript.partial()
        self.error: BaseException | None = None
        self.over = False

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
        self._feats.restore(self._no_feats)
        self.ended_feats.clear()
        self._next, self._past = 0, self._past[:, :0].clone()
        self._samples, self._packets = self._past, self._packets[:0].copy()
        self.state = self.engine.init_state(0)

    def finish(self) -> None:
        """End the stream: no more samples will be appended."""
        self.append(np.zeros(0, dtype=np.float32), last=True)

    def append(self, samples: np.ndarray, last: bool = False) -> None:
        """Append mono samples; they become feature frames that wait for the network.

        Small packets are joined until they may complete a chunk, as each call has a fixed cost.
        """
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
        if last and not self.due:
            self._end()

    def _completes(self, more: int) -> bool:
        """Return whether `more` samples at 16 kHz complete a chunk, or enough frames to process."""
        waiting = self._past.size(1) + self._samples.size(1) + more
        spec = self.engine.spec
        part = (self._pending - spec.ahead_frames) % spec.chunk_frames
        wanted = min(spec.chunk_frames - part, MOST_WAITING)
        return (waiting - self.engine.frontend.frame_size) // audio.HOP + 1 >= wanted

    def _resample(self, last: bool) -> None:
        """Resample all packets to 16 kHz; the result waits for the frontend."""
        samples, self._unresampled = self._resampler.step(self._unresampled, self._packets, last)
        self._packets = self._packets[:0].copy()
        if self.engine.detector is not None and self._speech_state is not None:
            self._speech_state, speech = self.engine.detector.step(
                self._speech_state, torch.from_numpy(samples)
            )
            self._speech += speech
        new = torch.from_numpy(samples)[None].to(self._samples)
        self._samples = torch.cat([self._samples, new], dim=1)

    def _extract(self, last: bool) -> None:
        """Turn the samples that wait for the frontend into frames that wait for the network."""
        if last:
            self._samples = self._with_end()
        feats, past = self.engine.features(self._samples, self._past)
        self._past = past.clone()  # a view would keep all samples in memory
        self._samples = self._samples[:, :0].clone()
        self._feats.append(feats[0])

    def _with_end(self) -> Tensor:
        """Return the samples that wait for the frontend, and the padding after the last sample."""
        past = self._past.size(1)
        samples = torch.cat([self._past, self._samples], dim=1)
        size = torch.tensor([samples.size(1)], device=samples.device)
        return self.engine.frontend.ended(samples, size)[:, past:]

    @property
    def due(self) -> int:
        """Number of feature frames that a step can process now.

        These are the frames of whole chunks with their right context, or all frames after the end.
        In full context: a window, see `Windows`. 0 if they make no encoder frame.
        """
        spec = self.engine.spec
        if self._windows is not None:
            window = self._windows.whole(self._transcript.frame, self._pending)
            if window:
                return window
        if self.ended:
            return self._pending if spec.rate.num_frames(self._pending) else 0
        whole = self._pending - spec.ahead_frames
        whole -= whole % spec.chunk_frames
        return whole + spec.ahead_frames if whole > 0 else 0

    @property
    def next_step(self) -> int:
        """Number of feature frames for the next step of a single stream: all that are due.

        If segments reset the encoder, a step is one chunk, so that each chunk has a state.
        """
        return min(self.due, self.engine.spec.step_frames) if self._resets else self.due

    @property
    def _pending(self) -> int:
        """Number of feature frames that no step has processed."""
        return self._feats.end - self._next

    def feats(self, frames: int) -> Tensor:
        """Return the first `frames` waiting feature frames, (T, F). They stay until `advance`."""
        return self._feats.read(self._next, self._next + frames)

    @property
    def live(self) -> OpenSegment:
        """Segment to which `advance` appends its first frames."""
        return self._transcript.live

    def advance(
        self, frames: Tensor, state: EncoderState, num_feats: int, after: Any = None
    ) -> None:
        """Advance by a step of the network over `num_feats` feature frames.

        Frames that are right context of the step, or left context of the next window, are kept
        for the next step.

        Args:
            frames: (E, V), output of the head.
            state: the network's past after these frames.
            num_feats: number of feature frames of the step.
            after: state of the search of `live` after the frames, if it is known; never in full
                context.
        """
        if self._windows is not None and num_feats < self._pending:
            frames, num_feats = self._window_text(frames, last=False)
            state = self.engine.init_state(1)
        elif self._windows is not None:
            frames, _ = self._window_text(frames, last=True)
        else:
            num_feats = min(num_feats, self.engine.spec.rate.factor * len(frames))
        count, num_ended = len(frames), self._transcript.num_ended
        self._next += num_feats
        self.state = state
        self._transcript.append(frames, self._duration, self._speech[:count], after)
        del self._speech[:count]
        if self._resets and self._transcript.num_ended > num_ended:
            self.state = self.engine.init_state(1)
        if self.ended and not self.due:
            self._end()
        else:
            self._move_on()

    def _window_text(self, frames: Tensor, last: bool) -> tuple[Tensor, int]:
        """Return the frames of a window's text, and the number of feature frames to drop."""
        assert self._windows is not None
        start = self._transcript.frame
        text = self._windows.text(frames, start, last)
        end = start + len(text)
        seen = end - self._windows.before(end) - (start - self._windows.before(start))
        return text, self.engine.spec.rate.factor * seen

    def second_search(self, frames: Tensor) -> tuple[OpenSegment, Tensor]:
        """Return the segment to which the second pass appends, and the frames of its text."""
        return self._transcript.second_search(frames)

    def append_second_pass(self, frames: Tensor, after: Any = None) -> None:
        """Append the second pass's frames (E, V) of `ended_feats[0]`.

        Args:
            frames: (E, V).
            after: state of the second pass's search after its frames, if it is known.
        """
        self.ended_feats.popleft()
        self._transcript.append_second_pass(frames, self._duration, after)
        self._move_on()

    def _end(self) -> None:
        """End the text: no step of the first pass follows."""
        self.state = self.engine.init_state(0)
        self._transcript.finish(self._duration)
        self._move_on()
        start = self._feats.start
        self._feats.restore(self._feats.read(start, self._next), start)

    def _move_on(self) -> None:
        """Update the result, and read the features of new spans."""
        factor, transcript = self.engine.spec.rate.factor, self._transcript
        for span, _ in list(transcript.waiting)[len(self.ended_feats) :]:
            ahead = min(self._pending, self.engine.spec.rate.lookahead)
            last = factor * span.last + ahead
            self.ended_feats.append(self._feats.read(factor * span.first, last))
        kept = self._next if self.second is None else factor * transcript.spans.first
        self._feats.drop(min(kept, self._next))
        self.update_result()
        self.over = self.result.is_final

    def update_result(self) -> None:
        self.result = self._transcript.partial()

    @property
    def num_appended(self) -> int:
        """Number of samples appended so far."""
        return self._unresampled.taken + len(self._packets)

    @property
    def seconds_processed(self) -> float:
        """Seconds of the session's audio that the network has processed."""
        appended, transcript = self.num_appended / self.sample_rate, self._transcript
        if not self.over:
            reached = seconds(transcript.frame, transcript.frame_ms, transcript.lead_ms)
            appended = min(appended, reached)
        return self.before / self.sample_rate + appended

    @property
    def _duration(self) -> float:
        return duration(self._unresampled.given, self._before_ms)

    @property
    def value(self) -> StreamValue:
        """Return the value from which `restore` continues a stream with the same options."""
        first = self.engine.spec.rate.factor * self._transcript.spans.first
        return StreamValue(
            self._packets, self._unresampled, self._past, self._samples,
            self.feats(self._pending), self._speech_state, tuple(self._speech),
            self._transcript.value, tuple(self.ended_feats),
            None if self.second is None else self._feats.read(first, self._next), self.state,
            self.ended,
        )  # fmt: skip

    def restore(self, value: StreamValue) -> None:
        """Restore the stream from a value.

        Raises:
            ValueError: if the value does not fit a stream with these options.
        """
        fresh = self.value
        self._transcript.restore(value.transcript, self.engine.spec.vocab_size)
        check(value, fresh, self.engine, self._windows, self._transcript.spans.first)
        if not value.ended:
            self._resampler.check(value.resampler)
        self._packets, self._unresampled = value.packets, value.resampler
        self.ended = value.ended
        self._past, self._samples = (
            each.to(self._past.device) for each in (value.past, value.samples)
        )
        kept = self._no_feats if value.kept is None else value.kept.to(self._past.device)
        first = self.engine.spec.rate.factor * self._transcript.spans.first
        self._feats.restore(kept, first)
        self._feats.append(value.feats.to(self._past.device))
        self._next, self._speech = first + len(kept), [*value.speech]
        self._speech_state = value.detector
        self.ended_feats = deque(each.to(self._past.device) for each in value.ended_feats)
        self.state = EncoderState(*(each.to(self.engine.spec.device) for each in value.state))
        self._move_on()


def duration(num_samples: int, before_ms: int = 0) -> float:
    """Return the whole milliseconds up to the last sample at 16 kHz, in seconds of the session.

    No word ends after them. Resampling may add a part of a sample, 0.06 ms at most.

    Args:
        num_samples: samples of the stream.
        before_ms: milliseconds of the session before the stream.
    """
    return (before_ms + num_samples * 1000 // audio.SAMPLE_RATE) / 1000
