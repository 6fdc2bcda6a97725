"""A recogniser: an engine and decoding options, with which sessions turn samples into text."""

import copy
import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from asrkit import audio
from asrkit.backends import Backend
from asrkit.build import build_hotwords, refused_hotwords
from asrkit.errors import UserError, reason
from asrkit.lm import weighed
from asrkit.runtime.endpoint import Endpointer
from asrkit.runtime.engine import build_engine
from asrkit.runtime.long_audio import build_second_pass, emissions_of
from asrkit.runtime.postprocess import applied, identity_of
from asrkit.runtime.results import Result
from asrkit.runtime.serialization import SavedStreamError, differences, read, unpack
from asrkit.runtime.session import PACKET_SECONDS, Session, SessionValue
from asrkit.runtime.stream import Stream, duration
from asrkit.runtime.transcript import DecodingOptions, Transcript, searched
from asrkit.runtime.words import Clock
from asrkit.search import Search
from asrkit.search.forced_alignment import AlignmentError, ForcedAlignment
from asrkit.terms import UNKNOWN, Terms
from asrkit.text import Tokenizer, WordTokenizer, end_of_turn, normalize

Phrases = Mapping[str, float] | Iterable[str]  # with weights, or without
AnySession = TypeVar("AnySession", bound=Session)


class Recognizer:
    """An engine with a tokenizer, a search and other decoding options. Never changes.

    Args:
        backend: backend that runs the network.
        tokenizer: tokenizer of the network's labels.
        search: search that turns the head's emissions into a hypothesis.
        normalizer: normalizer of the model's texts, which also spells hotwords.
        endpointer: endpointer that ends segments; None for one segment.
        postprocess: function that rewrites the text of each segment, for example with digits.
        second_pass: backend with the same network in a larger context, which recognises each ended
            segment again; None for one pass.
        second_search: search of the second pass; `search` if None.
        frontend: frontend of the network; Kaldi's if None.
        terms: licence and languages of the model.

    Raises:
        ValueError: for a frontend that does not fit the network, or a second pass whose context is
            not larger.
    """

    def __init__(
        self,
        backend: Backend,
        tokenizer: Tokenizer,
        search: Search,
        normalizer: Callable[[str], str] = normalize,
        endpointer: Endpointer | None = None,
        postprocess: Callable[[str], str] | None = None,
        second_pass: Backend | None = None,
        second_search: Search | None = None,
        frontend: audio.Frontend | None = None,
        terms: Terms = UNKNOWN,
    ) -> None:
        self.normalizer, self.terms = normalizer, terms
        self.end_of_turn = end_of_turn(tokenizer)
        self.engine = build_engine(backend, frontend, endpointer is not None and endpointer.vad)
        second = None
        if second_pass is not None:
            second = build_second_pass(second_pass, second_search or search, self.engine)
        self._set(DecodingOptions(tokenizer, search, endpointer, postprocess, second))

    def _set(self, decoding: DecodingOptions) -> None:
        """Set the decoding options, with searches for this network.

        Raises:
            UserError: for an endpointer that needs a label which the model does not have.
        """
        endpointer, second = decoding.endpointer, decoding.second
        if endpointer and endpointer.end_of_turn and self.end_of_turn is None:
            raise UserError(
                f"end_of_turn {endpointer.end_of_turn}: this model has no label for ends of turns; "
                "train it with text.end_of_turn=true, or let pauses end segments"
            )
        search = decoding.search.bound(self.backend.transducer, self.end_of_turn)
        if second is not None:
            last = second.search.bound(second.engine.backend.transducer, self.end_of_turn)
            second = second._replace(search=last)
        self.decoding = decoding._replace(search=search, second=second)
        self._identity: dict[str, Any] | None = None  # computed on first use

    @property
    def backend(self) -> Backend:
        return self.engine.backend

    @property
    def chunk_size(self) -> int:
        """Chunk size C, or FULL_CONTEXT."""
        return self.engine.spec.context.chunk_size

    @property
    def left_context(self) -> int:
        """M."""
        return self.engine.spec.context.left

    @property
    def context(self) -> str:
        """Name of the context, or names of both: "full", "640 ms", "320+160 ms, full"."""
        second = self.decoding.second
        last = "" if second is None else f", {second.engine.spec.context_name}"
        return self.engine.spec.context_name + last

    @property
    def tokenizer(self) -> Tokenizer:
        return self.decoding.tokenizer

    @property
    def search(self) -> Search:
        """Search of the first or only pass."""
        return self.decoding.search

    @property
    def final_search(self) -> Search:
        """Search of the pass whose text is final."""
        second = self.decoding.second
        return self.decoding.search if second is None else second.search

    @property
    def words(self) -> list[str] | None:
        """The complete list of words that the model can write; None if it writes any word."""
        return self.tokenizer.words if isinstance(self.tokenizer, WordTokenizer) else None

    @property
    def languages(self) -> tuple[str, ...]:
        """Codes of the languages that the model recognises, such as en; () if not stated."""
        return self.terms.languages

    @property
    def language(self) -> str | None:
        """First of the languages; None if the model states none."""
        return self.languages[0] if self.languages else None

    @property
    def frame_ms(self) -> int:
        """Milliseconds of an encoder frame."""
        return self.engine.spec.rate.frame_ms

    @property
    def takes_rows(self) -> bool:
        """Whether recordings may share a step; speech detectors and second passes prevent it."""
        return not (self.engine.detector or self.decoding.second)

    def rewrite(self, text: str) -> str:
        """Apply the postprocess to a text, if the recogniser has one.

        Raises:
            UserError: if the postprocess fails.
        """
        postprocess = self.decoding.postprocess
        return text if postprocess is None or not text else applied(postprocess, text)

    def with_hotwords(self, hotwords: Phrases | None) -> "Recognizer":
        """Return a recogniser of the same model whose sessions all prefer these phrases, too.

        Args:
            hotwords: phrases, or phrases with weights: natural logarithms for each word. None or
                no phrases: return this recogniser. With two passes, only the second search has to
                support hotwords.

        Raises:
            UserError: for a search without hotwords, a weight out of range, or a phrase that the
                tokenizer cannot write.
        """
        phrases = {} if hotwords is None else weighed(hotwords)
        if not phrases:
            return self
        fusion = build_hotwords(phrases, self.tokenizer, self.normalizer)
        other = self.with_final_search(self.final_search.plus(fusion))
        if self.decoding.second is not None and self.search.takes_fusion:
            other = other.with_search(self.search.plus(fusion))
        return other

    def refused_hotwords(self, phrases: Iterable[str]) -> dict[str, str]:
        """Return the phrases that `with_hotwords` rejects, with the reason for each."""
        return refused_hotwords(phrases, self.tokenizer, self.normalizer)

    def with_search(self, search: Search) -> "Recognizer":
        """Return a recogniser of the same model with another search in the first pass."""
        return self.with_decoding(self.decoding._replace(search=search))

    def with_alignment(self, tokens: list[int]) -> "Recognizer":
        """Return a recogniser that finds the times of the tokens (U,) of a known text.

        Raises:
            AlignmentError: for a transducer without a CTC layer, or in an export, which lacks it.
        """
        if self.backend.transducer is not None and self.backend.ctc is None:
            raise AlignmentError(
                "forced alignment needs a CTC layer, which this transducer or its export lacks: use"
                " backend eager, or another model"
            )
        return self.with_search(ForcedAlignment(tokens, self.backend.ctc))

    def with_final_search(self, search: Search) -> "Recognizer":
        """Return a recogniser of the same model with another search in the last pass."""
        second = self.decoding.second
        if second is None:
            return self.with_search(search)
        return self.with_decoding(self.decoding._replace(second=second._replace(search=search)))

    def with_decoding(self, decoding: DecodingOptions) -> "Recognizer":
        """Return a recogniser of the same model with other decoding options.

        Raises:
            UserError: for an endpointer that needs a label which the model does not have.
        """
        other = copy.copy(self)
        other._set(decoding)
        return other

    def start(
        self, sample_rate: int = audio.SAMPLE_RATE, hotwords: Phrases | None = None
    ) -> Session:
        """Start a stream of samples at this rate, with its own hotwords.

        Raises:
            AudioError: for a sample rate out of range.
            UserError: for hotwords that `with_hotwords` rejects.
        """
        return self.begin(Session, sample_rate, hotwords)

    def begin(
        self, make: Callable[..., AnySession], sample_rate: int, hotwords: Phrases | None = None
    ) -> AnySession:
        """Return the result of `make`, called with the arguments of `Session`: a session."""
        phrases = {} if hotwords is None else weighed(hotwords)
        decoding = self.with_hotwords(phrases).decoding
        begin = functools.partial(Stream, self.engine, decoding, sample_rate)
        return make(begin, phrases, self.identity)

    def restore(self, data: bytes) -> Session:
        """Restore a session that `save` has written; it continues exactly where it was.

        Args:
            data: session of a recogniser with the same model, backend, context, search and other
                options, from any process. Forged data may produce any text or error.

        Raises:
            SavedStreamError: for data of another recogniser or changed data.
        """
        return self.restored(Session, data)

    def restored(self, make: Callable[..., AnySession], data: bytes) -> AnySession:
        """Restore a session of any kind, made by `make` as in `begin`."""
        stored, raw, arrays = unpack(data)
        if others := differences(stored, self.identity()):
            raise SavedStreamError(
                f"the stream was saved by another recogniser, with {'; '.join(others[:3])}"
            )
        try:
            value = read(SessionValue, raw, arrays)
            session = self.begin(make, value.sample_rate, value.hotwords)
            session._restore(value)
        except Exception as error:  # forged values can raise any exception
            raise SavedStreamError(f"the saved stream is damaged: {reason(error)}") from None
        return session

    def identity(self) -> dict[str, Any]:
        """Return the values that a recogniser must share to restore a saved stream, as JSON.

        Raises:
            UserError: for a postprocess whose content cannot be compared.
        """
        if self._identity is None:  # takes longer than the rest of saving a stream
            _, _, endpointer, postprocess, second = self.decoding
            self._identity = {
                "tokenizer": hashlib.sha256(self.tokenizer.to_bytes()).hexdigest(),
                **self.engine.identity(),
                "search": self.search.identity(),
                "endpointer": endpointer and endpointer.options,
                "postprocess": postprocess and identity_of(postprocess),
                "second_pass": second and second.engine.context_identity(),
                "second_search": second and second.search.identity(),
            }
        return self._identity

    def transcribe(
        self,
        samples: np.ndarray | str | Path | bytes | BinaryIO,
        sample_rate: int = audio.SAMPLE_RATE,
        hotwords: Phrases | None = None,
        channel: int | None = None,
    ) -> Result:
        """Transcribe a whole recording: start, accept all samples, finish.

        Args:
            samples: float32 in [-1, 1] or int16, (n,) or (n, channels); or an audio file, read
                block by block at its own rate: a path, the file's bytes, or an open binary file.
            sample_rate: rate of `samples`, Hz.
            hotwords: phrases, see `with_hotwords`.
            channel: number of the channel, from 0; None for the mean of all channels.

        Raises:
            AudioError: for audio that cannot be used.
            UserError: for hotwords that cannot be used.
        """
        blocks: Iterable[tuple[np.ndarray, int]]
        if (source := audio.source_of(samples)) is not None:
            blocks = audio.blocks(source, PACKET_SECONDS, channel=channel)
        else:
            blocks = [(audio.mono(samples, channel, "the array"), sample_rate)]
        return self.transcribe_blocks(blocks, hotwords)

    def transcribe_blocks(
        self, blocks: Iterable[tuple[np.ndarray, int]], hotwords: Phrases | None = None
    ) -> Result:
        """Transcribe a whole recording that is read block by block.

        Args:
            blocks: blocks of samples with their rate in Hz, as `audio.blocks` yields them;
                see `transcribe` for their types.
            hotwords: phrases, see `with_hotwords`.
        """
        session = None
        for block, rate in blocks:
            session = session or self.start(rate, hotwords)
            session.accept(block)
        return (session or self.start(hotwords=hotwords)).finish()

    def transcribe_batch(self, utterances: Sequence[np.ndarray]) -> list[Result]:
        """Transcribe several short recordings at 16 kHz as rows of one step.

        Args:
            utterances: samples of each recording, see `Session.accept`.

        Raises:
            AudioError: for samples that cannot be used; the message has the index of the utterance.
        """
        mono = []
        for i, samples in enumerate(utterances):
            try:
                mono.append(audio.mono(samples))
            except audio.AudioError as error:
                raise audio.AudioError(f"utterance {i}: {error}") from None
        if not mono:
            return []
        if self.takes_rows:
            return self._results(self.emissions(mono), [len(samples) for samples in mono])
        return [self.transcribe_blocks([(samples, audio.SAMPLE_RATE)]) for samples in mono]

    def emissions(self, recordings: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the head's emissions for recordings at 16 kHz, rows of one step: (E, V or D) each.

        Args:
            recordings: mono, (n,) float32 in [-1, 1].
        """
        return emissions_of(self.engine, recordings, self.search.quiet)

    def read(self, emissions: np.ndarray, num_samples: int) -> Result:
        """Return the result of a whole recording of `num_samples` samples at 16 kHz in one pass,
        from its emissions (E, V or D)."""
        return self._results([emissions], [num_samples])[0]

    def _results(self, emissions: Sequence[np.ndarray], num_samples: Sequence[int]) -> list[Result]:
        """Compute `read` for several recordings; without endpoints, their searches share steps."""
        spec, decoding = self.engine.spec, self.decoding._replace(second=None)
        clock = Clock(spec.rate.frame_ms, self.engine.frontend.lead_ms)
        transcripts = [Transcript(decoding, clock, spec.context_name) for _ in emissions]
        states: list[Any] = [None] * len(transcripts)
        if decoding.endpointer is None:  # else another segment searches the frames after it
            states = searched([transcript.live for transcript in transcripts], emissions)
        results = []
        rows = zip(transcripts, emissions, num_samples, states, strict=True)
        for transcript, part, size, after in rows:
            transcript.append(part, duration(size), after=after)
            results.append(transcript.finish(duration(size)))
        return results
