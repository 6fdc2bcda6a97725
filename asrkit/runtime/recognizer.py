"""A recogniser: an engine and decoding options, with which sessions turn samples into text."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import numpy as np
from torch import Tensor

from asrkit import audio
from asrkit.backends import Backend
from asrkit.build import build_hotwords, refused_hotwords
from asrkit.errors import UserError, reason
from asrkit.lm import weighed
from asrkit.runtime.content import UnknownContentError, content_of
from asrkit.runtime.endpoint import Endpointer
from asrkit.runtime.engine import build_engine
from asrkit.runtime.fingerprint import differences, identity
from asrkit.runtime.postprocess import applied
from asrkit.runtime.results import Result
from asrkit.runtime.rows import frames_of_recordings, numbered, results_of_rows
from asrkit.runtime.second_pass import build_second_pass
from asrkit.runtime.serialization import SavedStreamError, read, unpack
from asrkit.runtime.session import PACKET_SECONDS, Session, SessionValue
from asrkit.runtime.stream import Stream
from asrkit.runtime.threads import survive_forks
from asrkit.runtime.transcript import DecodingOptions
from asrkit.search import Search
from asrkit.terms import UNKNOWN, Terms
from asrkit.text import Tokenizer, WordTokenizer, end_of_turn, normalize

Phrases = Mapping[str, float] | Iterable[str]  # with weights, or without
T = TypeVar("T", bound=Session)


class Origin(NamedTuple):
    """The call of `asrkit.load` that made a recogniser. Pickle stores the call, not the weights."""

    load: "functools.partial[Recognizer]"
    hotwords: tuple[Phrases, ...] = ()  # hotwords added after the call

    def recognizer(self) -> "Recognizer":
        """Make the recogniser again, with threads that fit this process."""
        return functools.reduce(Recognizer.with_hotwords, self.hotwords, self.load(threads=None))


class Recognizer:
    """An engine with a tokenizer, a search and other decoding options. Never changes.

    Args:
        backend: backend that runs the network.
        tokenizer: tokenizer of the network's labels.
        search: search that turns the head's frames into a hypothesis.
        normalizer: normalizer of the model's texts, which also spells hotwords.
        endpointer: endpointer that ends segments; None for one segment.
        postprocess: function that rewrites the text of each segment, for example with digits.
        second_pass: backend with the same network in a larger context, which recognises each ended
            segment again; None for one pass.
        second_search: search of the second pass; `search` if None.
        frontend: frontend of the network; Kaldi's if None.
        terms: licence and languages of the model.

    Raises:
        ValueError: for a frontend that does not fit the network, an endpointer that resets the
            encoder in full context, or a second pass whose context is not larger.
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
        spec = backend.spec
        self.end_of_turn = end_of_turn(tokenizer)
        first = search.bound(backend.transducer, self.end_of_turn)
        self.decoding = DecodingOptions(tokenizer, first, endpointer, postprocess)
        self.normalizer, self.terms = normalizer, terms
        self.origin: Origin | None = None  # `load` sets it
        survive_forks()
        self._identity: dict[str, Any] | None = None  # computed on first use
        # The content is hashed before the first call, which may change the function's data.
        self._postprocess: str | UserError | None = None
        if postprocess is not None:
            try:
                self._postprocess = content_of(postprocess)
            except UnknownContentError as error:  # raised where the content is needed
                self._postprocess = error
        self._check_label(endpointer)
        if self.decoding.resets_encoder and spec.context.full:
            raise ValueError(
                "an endpointer with reset_encoder=True needs a chunk_size, got full context"
            )
        self.engine = build_engine(backend, frontend, endpointer is not None and endpointer.vad)
        if second_pass is not None:
            last = (second_search or search).bound(second_pass.transducer, self.end_of_turn)
            second = build_second_pass(second_pass, last, self.engine)
            self.decoding = self.decoding._replace(second=second)

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
        """Whether recordings may share a step; resets, speech detectors and second passes
        prevent it."""
        decoding = self.decoding
        return not (decoding.resets_encoder or self.engine.detector or decoding.second)

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
        if self.origin is not None:
            added = (*self.origin.hotwords, phrases)
            other.origin = self.origin._replace(hotwords=added)
        return other

    def refused_hotwords(self, phrases: Iterable[str]) -> dict[str, str]:
        """Return the phrases that `with_hotwords` rejects, with the reason for each."""
        return refused_hotwords(phrases, self.tokenizer, self.normalizer)

    def with_search(self, search: Search) -> "Recognizer":
        """Return a recogniser of the same model with another search in the first pass."""
        search = search.bound(self.backend.transducer, self.end_of_turn)
        return self.with_decoding(self.decoding._replace(search=search))

    def with_final_search(self, search: Search) -> "Recognizer":
        """Return a recogniser of the same model with another search in the last pass."""
        second = self.decoding.second
        if second is None:
            return self.with_search(search)
        search = search.bound(second.engine.backend.transducer, self.end_of_turn)
        return self.with_decoding(self.decoding._replace(second=second._replace(search=search)))

    def with_decoding(self, decoding: DecodingOptions) -> "Recognizer":
        """Return a recogniser of the same model with other decoding options.

        Raises:
            UserError: for an endpointer that needs a label which the model does not have.
        """
        self._check_label(decoding.endpointer)
        other = object.__new__(type(self))  # copy.copy would load the model again
        vars(other).update(vars(self))
        other.decoding, other._identity, other.origin = decoding, None, None
        return other

    def _check_label(self, endpointer: Endpointer | None) -> None:
        """Raise UserError for an endpointer that needs a label which the model does not have."""
        if endpointer is None or endpointer.end_of_turn is None or self.end_of_turn is not None:
            return
        raise UserError(
            f"end_of_turn {endpointer.end_of_turn}: this model has no label for ends of turns; "
            "train it with text.end_of_turn=true, or let pauses end segments"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        if self.origin is None:
            raise UserError(
                "only a recognizer of asrkit.load can be pickled, with or without hotwords: it is "
                "loaded again from its model file; in the other process call asrkit.load"
            )
        return Origin.recognizer, (self.origin,)

    def start(
        self, sample_rate: int = audio.SAMPLE_RATE, hotwords: Phrases | None = None
    ) -> Session:
        """Start a stream of samples at this rate, with its own hotwords.

        Raises:
            AudioError: for a sample rate out of range.
            UserError: for hotwords that `with_hotwords` rejects.
        """
        return self.begin(Session, sample_rate, hotwords)

    def begin(self, make: Callable[..., T], sample_rate: int, hotwords: Phrases | None = None) -> T:
        """Return the result of `make`, called with the arguments of `Session`: a session."""
        phrases = {} if hotwords is None else weighed(hotwords)
        decoding = self.with_hotwords(phrases).decoding
        begin = functools.partial(Stream, self.engine, decoding, sample_rate)
        return make(begin, phrases, self.identity)

    def restore(self, data: bytes, key: bytes | None = None) -> Session:
        """Restore a session that `save` has written; it continues exactly where it was.

        Args:
            data: session of a recogniser with the same model, backend, context, search and other
                options, from any process.
            key: key with which the session was saved.

        Raises:
            SavedStreamError: for data of another recogniser or changed data; with a key, also for
                data without the key's tag. Without a key, forged data may produce any text.
        """
        return self.restored(Session, data, key)

    def restored(self, make: Callable[..., T], data: bytes, key: bytes | None) -> T:
        """Restore a session of any kind, made by `make` as in `begin`."""
        theirs, raw, tensors = unpack(data, key)
        if others := differences(theirs, self.identity()):
            raise SavedStreamError(
                f"the stream was saved by another recogniser, with {'; '.join(others[:3])}"
            )
        try:
            value = read(SessionValue, raw, tensors)
            session = self.begin(make, value.sample_rate, value.hotwords)
            session._restore(value)
        except ValueError as error:
            raise SavedStreamError(f"the saved stream is damaged: {reason(error)}") from None
        return session

    def identity(self) -> dict[str, Any]:
        """Return the values that a recogniser must share to restore a saved stream, as JSON.

        Raises:
            UserError: for a postprocess whose content cannot be compared.
        """
        if self._identity is None:  # takes longer than the rest of saving a stream
            self._identity = identity(self.engine, self.decoding, self._postprocess)
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
        if (source := audio.source_of(samples)) is not None:
            blocks = audio.mono_blocks(source, PACKET_SECONDS, channel=channel)
            return self.transcribe_blocks(blocks, hotwords)
        session = self.start(sample_rate, hotwords)
        mixer = audio.Mixer("the array", channel)
        session.accept(mixer(samples))
        mixer.warn()
        return session.finish()

    def transcribe_blocks(
        self, blocks: Iterable[tuple[np.ndarray, int]], hotwords: Phrases | None = None
    ) -> Result:
        """Transcribe a whole recording that is read block by block.

        Args:
            blocks: blocks of samples with their rate in Hz, as `audio.mono_blocks` yields them;
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
        mono = [numbered(i, samples) for i, samples in enumerate(utterances)]
        if not mono:
            return []
        if not self.takes_rows:
            return [self._transcribe(samples) for samples in mono]
        sizes = [len(samples) for samples in mono]
        return results_of_rows(self.engine, self.decoding, self.frames(mono), sizes)

    def _transcribe(self, mono: np.ndarray) -> Result:
        session = self.start()
        session._append(mono)
        return session.finish()

    def frames(self, recordings: Sequence[np.ndarray]) -> list[Tensor]:
        """Return the head's frames of recordings at 16 kHz, rows of one step: (E, V) each.

        Args:
            recordings: mono, (n,) float32 in [-1, 1].
        """
        return frames_of_recordings(self.engine, recordings, self.search.quiet)

    def read(self, frames: Tensor, num_samples: int) -> Result:
        """Return the result of a whole recording of `num_samples` samples at 16 kHz in one pass,
        from its frames (E, V)."""
        return results_of_rows(self.engine, self.decoding, [frames], [num_samples])[0]
