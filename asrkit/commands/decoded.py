"""What becomes of recordings that are decoded: results in batches, how they are written, scores."""

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from asrkit import audio
from asrkit.audio.io import at_16_khz
from asrkit.commands.recordings import by_length, timed
from asrkit.data.labelled import Labelled
from asrkit.errors import UserError, printable
from asrkit.evaluation.wer import cer, wer
from asrkit.extras import need
from asrkit.lm import WordFusion
from asrkit.lm.fit import unfamiliar
from asrkit.runtime import Recognizer, Result, Segment
from asrkit.runtime.formats import Recording
from asrkit.search import Both


class Decoded(NamedTuple):
    """What became of a job."""

    number: int  # of the job
    result: Result | UserError
    seconds: float = 0.0  # of audio


def outcomes(
    recognizer: Recognizer, jobs: list[Labelled], batch_seconds: float
) -> Iterator[Decoded]:
    """A result or the error of every job, in batches of similar length as files come in.

    Long recordings go alone and piece by piece; the numbers are the same either way.
    """
    waiting: list[tuple[int, Any]] = []
    seconds = 0.0
    for index, job in enumerate(jobs):
        try:
            lengths: list[float] = []
            blocks = timed(job.blocks(), lengths)
            begun = list(islice(blocks, 2))
            if len(begun) > 1:  # too long to be read at once
                result = recognizer.transcribe_blocks(chain(begun, blocks))
                yield Decoded(index, result, sum(lengths))
                continue
            samples = at_16_khz(chain(begun, blocks))
        except UserError as error:
            yield Decoded(index, error)
            continue
        waiting.append((index, samples))
        seconds += sum(lengths)
        if seconds > 8 * batch_seconds:
            yield from batches(recognizer, waiting, batch_seconds)
            waiting, seconds = [], 0.0
    yield from batches(recognizer, waiting, batch_seconds)


def batches(
    recognizer: Recognizer, waiting: list[tuple[int, Any]], batch_seconds: float
) -> Iterator[Decoded]:
    """Results of loaded recordings, those of similar length together."""
    for batch in by_length(waiting, lambda item: len(item[1]) / audio.SAMPLE_RATE, batch_seconds):
        results = results_of(recognizer, [samples for _, samples in batch])
        for (index, samples), result in zip(batch, results, strict=True):
            yield Decoded(index, result, len(samples) / audio.SAMPLE_RATE)


def results_of(recognizer: Recognizer, batch: list[Any]) -> list[Result | UserError]:
    """A result for each recording, or what is wrong with it: the others have theirs."""
    try:
        return [*recognizer.transcribe_batch(batch)]
    except UserError as error:
        if len(batch) == 1:
            return [error]
        return [result for samples in batch for result in results_of(recognizer, [samples])]


def recording_of(job: Labelled, result: Result, seconds: float, nbest: int) -> Recording:
    """What is written of a result of so many seconds of audio."""
    more: dict[str, Any] = {} if job.text is None else {"reference": job.text}
    if len(result.segments) > 1:
        more["segments"] = [
            {
                "text": each.text,
                "start": each.start,
                "end": each.end,
                "context": each.context,
                **texts(each, nbest),
            }
            for each in result.segments
        ]
    else:
        more |= texts(result, nbest)
    return Recording(result.words, job.id, seconds, more)


def texts(result: Result | Segment, nbest: int) -> dict[str, Any]:
    """The likeliest texts, if they are asked for."""
    return {"nbest": [each._asdict() for each in result.nbest[:nbest]]} if nbest else {}


def report(
    jobs: Sequence[Labelled],
    texts: Sequence[str | None],
    recognizer: Recognizer,
    normalizer: Callable[[str], str],
) -> None:
    """Error rates of the recordings that have a reference, on standard error.

    A language model that lacks many of the recognised words is reported as well.

    Args:
        jobs: the recordings.
        texts: of each, None for one that could not be decoded.
        recognizer: wrote the texts.
        normalizer: of the recogniser's texts.
    """
    found = [text for text in texts if text is not None]
    model = word_model(getattr(recognizer.final_search, "fusion", None))
    # The model has its words as they are before a postprocess rewrites them.
    if model is not None and recognizer.decoding.postprocess is None:
        line = unfamiliar(found, model.has_word)
        if line:
            print(f"asrkit decode: {printable(line)}", file=sys.stderr)
    references, hypotheses, failed = [], [], 0
    for job, text in zip(jobs, texts, strict=True):
        if job.text is not None and text is not None:
            references.append(recognizer.rewrite(normalizer(job.text)))
            hypotheses.append(text)
        failed += job.text is not None and text is None
    if not references:
        return
    try:
        need("jiwer")
    except UserError as error:
        print(f"asrkit decode: no error rates: {error}", file=sys.stderr)
    else:
        without = f" without {failed} that could not be decoded" if failed else ""
        print(f"WER {wer(references, hypotheses)}{without}", file=sys.stderr)
        print(f"CER {cer(references, hypotheses)}{without}", file=sys.stderr)


def word_model(fusion: object) -> WordFusion | None:
    """The language model of words in a fusion, if there is one."""
    if isinstance(fusion, Both):
        return word_model(fusion.first) or word_model(fusion.second)
    return fusion if isinstance(fusion, WordFusion) else None
