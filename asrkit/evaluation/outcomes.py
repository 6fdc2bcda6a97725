"""Outcomes: results of recognisers for recordings with a reference."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from asrkit.audio import SAMPLE_RATE
from asrkit.evaluation.delays import delays
from asrkit.evaluation.recording_search import Trace
from asrkit.evaluation.wer import ErrorRate, wer
from asrkit.runtime import Recognizer, Result
from asrkit.search import Hypothesis
from asrkit.search.forced_alignment import AlignmentError
from asrkit.text import TextError

PIECES_SECONDS = 60.0  # longer recordings are recognised alone and in pieces, to limit memory
MOST_ALIGNED_SECONDS = 300.0  # the memory of full context grows with the square of the length


class ReferenceRecording(NamedTuple):
    """A recording with its reference text."""

    id: str
    samples: np.ndarray  # (n,) float32 at 16 kHz
    reference: str  # normalised like the model's texts

    @property
    def seconds(self) -> float:
        return len(self.samples) / SAMPLE_RATE


class ReferenceLoss(NamedTuple):
    """The head's loss of a reference."""

    nats: float
    tokens: int


class Outcome(NamedTuple):
    """The outcome of one recogniser for one utterance.

    The delays are None without an alignment, and for a second pass, whose text is written at the
    end of a segment.
    """

    id: str
    seconds: float
    reference: str  # rewritten by the recogniser's postprocess
    result: Result
    frame_ms: int  # of an encoder frame, the unit of delays
    loss: ReferenceLoss | None = None  # None if the reference cannot be written or aligned
    delays: tuple[list[int], list[int]] | None = None  # result of `delays.delays`

    @property
    def text(self) -> str:
        return self.result.text

    @property
    def errors(self) -> ErrorRate:
        """The errors by units."""
        return wer([self.reference], [self.text])


def recognize(
    batches: Iterable[Sequence[ReferenceRecording]],
    recognizers: Mapping[str, Recognizer],
    aligner: Recognizer | None = None,
) -> Iterator[dict[str, Outcome]]:
    """Yield the outcomes of each utterance, by the recognisers' names.

    Args:
        batches: utterances, which share steps of the network if possible.
        recognizers: recognisers of one model, by name.
        aligner: recogniser in full context without endpoints, which aligns the references. None for
            no alignments and no delays.
    """
    for batch in batches:
        found = {name: traced(each, batch) for name, each in recognizers.items()}
        full = [name for name, each in recognizers.items() if each.engine.spec.context.full]
        for i, utterance in enumerate(batch):
            alignment = None
            if aligner is not None:
                known = found[full[0]][i][1].emissions if full else None
                alignment = aligned(aligner, utterance, known)
            yield {
                name: outcome_of(each, utterance, *found[name][i], alignment)
                for name, each in recognizers.items()
            }


def traced(
    recognizer: Recognizer, utterances: Sequence[ReferenceRecording]
) -> list[tuple[Result, Trace]]:
    """Return the result of each utterance, with the trace of its search."""
    traces = [Trace(recognizer.final_search) for _ in utterances]
    tracing = [recognizer.with_final_search(trace) for trace in traces]
    samples = [utterance.samples for utterance in utterances]
    short = all(utterance.seconds <= PIECES_SECONDS for utterance in utterances)
    if recognizer.takes_rows and short and len(utterances) > 1:
        rows = recognizer.emissions(samples)
        each = zip(tracing, rows, samples, strict=True)
        results = [own.read(row, len(signal)) for own, row, signal in each]
    else:
        alone = zip(tracing, samples, strict=True)
        results = [own.transcribe(signal) for own, signal in alone]
    return list(zip(results, traces, strict=True))


def outcome_of(
    recognizer: Recognizer, utterance: ReferenceRecording, result: Result, trace: Trace,
    alignment: Hypothesis | None = None,
) -> Outcome:  # fmt: skip
    """Score a result against its reference."""
    emissions, late = trace.emissions, None
    if alignment is not None and recognizer.decoding.second is None:
        context = recognizer.engine.spec.context
        late = delays(alignment, trace.hypothesis, context, len(emissions))
    return Outcome(
        utterance.id, utterance.seconds, recognizer.rewrite(utterance.reference), result,
        recognizer.frame_ms, loss_of(recognizer, emissions, utterance.reference), late,
    )  # fmt: skip


def aligned(
    aligner: Recognizer, utterance: ReferenceRecording, emissions: np.ndarray | None = None
) -> Hypothesis | None:
    """Return the reference's tokens with their times, by forced alignment.

    The result is None if the tokenizer cannot write the reference, the audio is too short for it or
    too long for full context, or the head's emissions cannot be aligned.

    Args:
        aligner: recogniser in full context, without endpoints.
        emissions: the head's emissions (E, V) in full context, if they are known.
    """
    if emissions is None:
        if utterance.seconds > MOST_ALIGNED_SECONDS:
            return None
        (emissions,) = aligner.emissions([utterance.samples])
    try:
        tokens = aligner.tokenizer.encode(utterance.reference)
        trace = Trace(aligner.with_alignment(tokens).search)
        aligner.with_search(trace).read(emissions, len(utterance.samples))
    except (TextError, AlignmentError):
        return None
    return trace.hypothesis


def loss_of(recognizer: Recognizer, emissions: np.ndarray, reference: str) -> ReferenceLoss | None:
    """Return the head's loss of a reference.

    None if it cannot be written or needs more frames, and for an export, which has no loss.
    """
    try:
        tokens = recognizer.tokenizer.encode(reference)
    except TextError:
        return None
    loss = recognizer.backend.loss and recognizer.backend.loss(emissions, tokens)
    return None if loss is None else ReferenceLoss(loss, len(tokens))
