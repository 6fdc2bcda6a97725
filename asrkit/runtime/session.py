"""One stream of audio: what it has been given, what waits for the network, what was understood."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from asrkit import audio
from asrkit.errors import shown
from asrkit.model import EncoderState
from asrkit.runtime.results import Result
from asrkit.runtime.transcript import Transcript

if TYPE_CHECKING:
    from asrkit.runtime.recognizer import Recognizer

MOST_WAITING = 100  # frames whose samples wait: those of a chunk, in long chunks of a second
PIECE_SECONDS = 30  # longest piece of audio worked on at once: bounds memory, not results


class Stream:
    """A stream without the network's steps: those are its owner's, alone or with other streams.

        with stream.changing():
            stream.put(samples)
            feats = stream.feats(stream.due)           # (T, F)
            stream.give(log_probs, state, len(feats))  # of a step from stream.state over feats

    Args:
        recognizer: of which this is a stream.
        sample_rate: of the samples to come, Hz.

    Attributes:
        result: what is known so far.
        ended: whether there are no more samples to come.
        error: what ended the stream before its time, if anything did.
        over: whether it goes no further: it is final, failed, or was given up.

    Raises:
        AudioError: for a sample rate out of range.
    """

    def __init__(self, recognizer: "Recognizer", sample_rate: int) -> None:
        self.recognizer = recognizer
        precision = "float64" if recognizer.reference.dtype == torch.float64 else "float32"
        self._resampler = audio.Resampler(sample_rate, dtype=precision)
        self.sample_rate = self._resampler.rate
        self._past = recognizer.reference.new_zeros(0)  # (p,) samples of the frames to come
        self._feats: deque[Tensor] = deque()  # each (t, F): frames that no step has taken
        self._pending = 0  # frames in them
        if recognizer.detector is not None:
            self._speech_state = recognizer.detector.start()
        self._speech: list[bool] = []  # of encoder frames to come
        self._transcript = Transcript(recognizer.reading)
        self._samples = 0  # put, at 16 kHz
        self.ended = False
        self.state = recognizer.init_state(1)
        self.result = self._transcript.partial()
        self.error: BaseException | None = None
        self.over = False

    @contextmanager
    def changing(self) -> Iterator[None]:
        """What changes the stream. Whatever is raised in it, Ctrl-C too, ends the stream.

        Half of what it was given may have been taken then, and a resampler does not go back.
        """
        try:
            yield
        except BaseException as error:
            self.error = error
            self.give_up()
            raise

    def give_up(self) -> None:
        """Go no further, and keep nothing of what waits."""
        self.over = self.ended = True
        self._feats.clear()
        self._pending, self._past = 0, self._past[:0].clone()

    def check(self) -> None:
        """Raises RuntimeError if the stream failed."""
        if self.error is not None:
            kind, message = type(self.error).__name__, shown(str(self.error))
            raise RuntimeError(
                f"this session failed, start another one: {kind}({message})"
            ) from self.error

    def pieces(self, samples: np.ndarray) -> list[np.ndarray]:
        """Samples as they come -> mono, in pieces; checked before anything changes.

        Raises:
            AudioError: for samples that cannot be used.
            RuntimeError: if the stream has ended or failed.
        """
        self.check()
        if self.ended:
            raise RuntimeError("this session has ended; start another one")
        samples = audio.mono(samples)
        size = PIECE_SECONDS * self.sample_rate
        return [samples[start : start + size] for start in range(0, len(samples), size)]

    def end(self) -> None:
        """There are no more samples to come."""
        self.put(np.zeros(0, dtype=np.float32), last=True)

    def put(self, samples: np.ndarray, last: bool = False) -> None:
        """Samples, mono -> samples at 16 kHz -> frames that wait for the network."""
        recognizer = self.recognizer
        samples = self._resampler(samples, last=last)
        self._samples += len(samples)
        if recognizer.detector is not None:
            self._speech_state, speech = recognizer.detector.step(
                self._speech_state, torch.from_numpy(samples)
            )
            self._speech += speech
        self._past = torch.cat([self._past, torch.from_numpy(samples).to(self._past)])
        ready = (len(self._past) - audio.WINDOW) // audio.HOP + 1
        chunk = 4 * recognizer.chunk_size
        # A packet's two frames cost half of what a chunk's 64 do: packets wait for each other.
        if last or ready >= min(chunk - self._pending % chunk, MOST_WAITING):
            feats, past = recognizer.features(self._past)
            self._past = past.clone()  # a view would keep all samples in memory
            self._feats.append(feats)
            self._pending += len(feats)
        self.ended = last
        if last and not self._pending:
            self._finish()

    @property
    def due(self) -> int:
        """Frames that a step can take now: those of whole chunks, and at the end all of them."""
        if self.ended:
            return self._pending
        return self._pending - self._pending % (4 * self.recognizer.chunk_size)

    def feats(self, frames: int) -> Tensor:
        """(T, F), T = `frames` of those that are due. They stay until `give`."""
        parts: list[Tensor] = []
        for part in self._feats:
            if frames == 0:
                break
            parts.append(part[:frames])
            frames -= len(parts[-1])
        return torch.cat(parts)

    def give(self, log_probs: Tensor, state: EncoderState, frames: int) -> None:
        """What the network made of so many frames: (E, V), and the state after them."""
        self._drop(frames)
        self.state = state
        count, segments = len(log_probs), len(self._transcript.segments)
        self._transcript.accept(log_probs, self._heard, self._speech[:count])
        del self._speech[:count]
        if self.recognizer.resets and len(self._transcript.segments) > segments:
            self.state = self.recognizer.init_state(1)
        if self.ended and not self._pending:
            self._finish()
        else:
            self.result = self._transcript.partial()

    def _drop(self, frames: int) -> None:
        self._pending -= frames
        while frames:
            part = self._feats.popleft()
            if len(part) > frames:
                rest = part[frames:]
                # A view would keep a long piece in memory for the sake of its last frames.
                short = len(rest) < 4 * self.recognizer.chunk_size
                self._feats.appendleft(rest.clone() if short else rest)
            frames -= min(frames, len(part))

    def _finish(self) -> None:
        self.result = self._transcript.finish(self._heard)
        self.over = True

    @property
    def _heard(self) -> float:
        return seconds_heard(self._samples)


class Session:
    """One stream: takes samples as they come, answers with what is known so far.

    The result does not depend on how the samples were cut into packets. Samples that cannot be used
    are refused before anything has changed; any other exception, Ctrl-C too, ends the session.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def accept(self, samples: np.ndarray) -> Result:
        """Take any number of samples, also 0 or 1; the result so far.

        Args:
            samples: float32 in [-1, 1] or int16, (n,) or (n, channels).

        Raises:
            AudioError: for samples that cannot be used; the session is as it was before.
            RuntimeError: after `finish`, or after another exception.
        """
        pieces = self._stream.pieces(samples)
        with self._stream.changing():
            for piece in pieces:
                self._stream.put(piece)
                self._step()
        return self._stream.result

    def finish(self) -> Result:
        """The final result. Nothing has to be appended to flush the last words.

        Raises:
            RuntimeError: after an exception that ended the session.
        """
        self._stream.check()
        if not self._stream.over:
            with self._stream.changing():
                self._stream.end()
                self._step()
        return self._stream.result

    def _step(self) -> None:
        """All that is due."""
        stream, recognizer = self._stream, self._stream.recognizer
        while due := stream.due:
            # A state that may be reset after any chunk has to be there after every chunk.
            frames = min(due, 4 * recognizer.chunk_size) if recognizer.resets else due
            feats = stream.feats(frames)
            lengths = torch.tensor([frames], device=feats.device)
            output = recognizer.step(feats[None], lengths, stream.state)
            stream.give(output.log_probs[0, : int(output.lengths[0])], output.state, frames)


def seconds_heard(num_samples: int) -> float:
    """Up to the millisecond of the last of some samples at 16 kHz.

    Resampling may add a part of one.
    """
    return max(0, num_samples - 1) * 1000 // audio.SAMPLE_RATE / 1000
