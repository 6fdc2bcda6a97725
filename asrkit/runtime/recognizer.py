"""From samples to text: a Recognizer, on which sessions run."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from asrkit import audio
from asrkit.backends import Backend
from asrkit.build import build_hotwords
from asrkit.lm import weighed
from asrkit.model import FULL_CONTEXT, CTCOutput, EncoderState
from asrkit.runtime.endpoint import Endpointer
from asrkit.runtime.results import Result
from asrkit.runtime.session import PIECE_SECONDS, Session, Stream, seconds_heard
from asrkit.runtime.transcript import Reading, Transcript
from asrkit.runtime.vad import SpeechDetector
from asrkit.search import Search, plus
from asrkit.text import Tokenizer, normalize

Phrases = Mapping[str, float] | Iterable[str]  # with weights, or without


class Recognizer:
    """A network at one chunk size and left context, a tokenizer and a search. Never changes.

    Args:
        backend: what runs the network.
        tokenizer: of the network's labels.
        search: from log-probabilities to a hypothesis.
        normalizer: of the model's texts, so that hotwords are spelled as they are.
        endpointer: where segments end; None for a stream in one segment.
        postprocess: rewrites the text of each segment, as digits or with capitals.

    Raises:
        ValueError: for an endpointer that resets the encoder in full context.
    """

    def __init__(
        self,
        backend: Backend,
        tokenizer: Tokenizer,
        search: Search,
        normalizer: Callable[[str], str] = normalize,
        endpointer: Endpointer | None = None,
        postprocess: Callable[[str], str] | None = None,
    ) -> None:
        self.backend, self.chunk_size = backend, backend.spec.chunk_size
        self.left_context = backend.spec.left_context
        self.reading = Reading(tokenizer, search, endpointer, postprocess)
        self.normalizer = normalizer
        self.resets = endpointer is not None and endpointer.reset_encoder
        if self.resets and self.chunk_size == FULL_CONTEXT:
            raise ValueError("in full context there is no encoder state to reset")
        self.detector = SpeechDetector() if endpointer is not None and endpointer.vad else None
        self.reference = backend.init_state(1).feats  # its device and precision are the network's
        self.fbank = audio.Fbank(self.reference.size(2)).to(self.reference)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.reading.tokenizer

    @property
    def search(self) -> Search:
        return self.reading.search

    def with_hotwords(self, hotwords: Phrases | None) -> "Recognizer":
        """A recogniser of the same model whose every session prefers these phrases as well.

        Args:
            hotwords: phrases, or phrases with weights: natural logarithms for each word. None,
                or none of them: this recogniser itself.

        Raises:
            UserError: for a search that takes none, a weight out of range, or a phrase that the
                tokenizer cannot write.
        """
        phrases = {} if hotwords is None else weighed(hotwords)
        if not phrases:
            return self
        fusion = build_hotwords(phrases, self.tokenizer, self.normalizer)
        return self.with_search(plus(self.search, fusion))

    def with_search(self, search: Search) -> "Recognizer":
        """A recogniser of the same model that searches in another way."""
        other = copy.copy(self)
        other.reading = self.reading._replace(search=search)
        return other

    def start(
        self, sample_rate: int = audio.SAMPLE_RATE, hotwords: Phrases | None = None
    ) -> Session:
        """A new stream of samples at this rate, with hotwords of its own.

        Raises:
            AudioError: for a sample rate out of range.
            UserError: for hotwords that `with_hotwords` does not take.
        """
        return Session(Stream(self.with_hotwords(hotwords), sample_rate))

    def transcribe(
        self,
        samples: np.ndarray | str | Path,
        sample_rate: int = audio.SAMPLE_RATE,
        hotwords: Phrases | None = None,
    ) -> Result:
        """A whole recording: start, accept everything, finish.

        Args:
            samples: float32 in [-1, 1] or int16, (n,) or (n, channels); or the path of a file,
                read piece by piece at its own rate.
            sample_rate: of `samples`, Hz.
            hotwords: as `with_hotwords` takes them.

        Raises:
            AudioError: for audio that cannot be used.
            UserError: for hotwords that cannot be.
        """
        if isinstance(samples, (str, Path)):
            session = self.start(audio.info(samples).sample_rate, hotwords)
            for block, _ in audio.blocks(samples, PIECE_SECONDS):
                session.accept(block)
        else:
            session = self.start(sample_rate, hotwords)
            session.accept(samples)
        return session.finish()

    def transcribe_batch(self, utterances: Sequence[np.ndarray]) -> list[Result]:
        """Several short recordings at 16 kHz as rows of one step.

        Args:
            utterances: each as `Session.accept` takes samples.

        Raises:
            AudioError: for samples that cannot be used, with the number of their utterance, from 0.
        """
        mono = [numbered(i, samples) for i, samples in enumerate(utterances)]
        if not mono:
            return []
        if self.resets or self.detector:  # neither knows rows
            return [self.transcribe(samples) for samples in mono]
        rows = self.log_probs(mono)
        return [self.read(row, len(samples)) for row, samples in zip(rows, mono, strict=True)]

    def log_probs(self, recordings: Sequence[np.ndarray]) -> list[Tensor]:
        """What the network makes of recordings at 16 kHz, as rows of one step: (E, V) of each.

        Args:
            recordings: mono, (n,) float32 in [-1, 1].
        """
        rows = [torch.from_numpy(samples).to(self.reference) for samples in recordings]
        num_samples = torch.tensor([len(row) for row in rows], device=self.reference.device)
        with torch.inference_mode():
            feats, lengths = audio.features(
                self.fbank, pad_sequence(rows, batch_first=True), num_samples
            )
        output = self.step(feats, lengths, self.init_state(len(rows)))
        return [row[:n] for row, n in zip(output.log_probs, output.lengths.tolist(), strict=True)]

    def read(self, log_probs: Tensor, num_samples: int) -> Result:
        """The final result of a whole recording of so many samples at 16 kHz, from its (E, V)."""
        transcript, heard = Transcript(self.reading), seconds_heard(num_samples)
        transcript.accept(log_probs, heard)
        return transcript.finish(heard)

    def features(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Samples (n,) -> feats (t, F) and the past (p,), the samples of the frames to come."""
        samples = samples.to(self.reference)[None]
        with torch.inference_mode():
            feats, past = self.fbank(samples, samples[:, :0])
        return feats[0], past[0]

    def init_state(self, batch_size: int) -> EncoderState:
        return self.backend.init_state(batch_size)

    def step(self, feats: Tensor, lengths: Tensor, state: EncoderState) -> CTCOutput:
        """(B, T, F), (B,) and the past -> CTCOutput; the network's only way in."""
        with torch.inference_mode():
            return self.backend.step(feats, lengths, state)


def numbered(index: int, samples: np.ndarray) -> np.ndarray:
    """Mono samples of one utterance among several, which an error names."""
    try:
        return audio.mono(samples)
    except audio.AudioError as error:
        raise audio.AudioError(f"utterance {index}: {error}") from None
