"""Results of many recordings, in batches of similar length."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from asrkit import audio
from asrkit.audio.files import at_16_khz
from asrkit.data.recording import Recording, timed
from asrkit.data.sampling import by_length
from asrkit.errors import UserError
from asrkit.runtime import Recognizer, Result


class Decoded(NamedTuple):
    """The outcome of a job."""

    number: int  # number of the job
    result: Result | UserError
    seconds: float = 0.0  # seconds of audio


def outcomes(
    recognizer: Recognizer, jobs: Sequence[Recording], batch_seconds: float
) -> Iterator[Decoded]:
    """Yield a result or an error for every job, decoded in batches of similar length.

    Long recordings are decoded alone and in pieces; the results do not depend on this.
    """
    waiting: list[tuple[int, Any]] = []
    seconds = 0.0
    for index, job in enumerate(jobs):
        try:
            lengths: list[float] = []
            blocks = timed(job.blocks(), lengths.append)
            begun = list(islice(blocks, 2))
            if len(begun) > 1:  # too long to read at once
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
    """Yield results of loaded recordings, in batches of similar length."""
    for batch in by_length(waiting, lambda item: len(item[1]) / audio.SAMPLE_RATE, batch_seconds):
        results = results_of(recognizer, [samples for _, samples in batch])
        for (index, samples), result in zip(batch, results, strict=True):
            yield Decoded(index, result, len(samples) / audio.SAMPLE_RATE)


def results_of(recognizer: Recognizer, batch: list[Any]) -> list[Result | UserError]:
    """Return a result or an error for each recording; an error does not affect the others."""
    try:
        return [*recognizer.transcribe_batch(batch)]
    except UserError as error:
        if len(batch) == 1:
            return [error]
        return [result for samples in batch for result in results_of(recognizer, [samples])]


def together(
    found: Iterable[Decoded], sizes: Sequence[int], in_order: bool
) -> Iterator[tuple[int, list[Decoded]]]:
    """Yield the number and the outcomes of each group of jobs, when the group is complete.

    Args:
        sizes: number of jobs in each group; the jobs of a group are neighbours.
        in_order: whether a group waits for the ones before it.
    """
    done: list[list[Decoded]] = [[] for _ in sizes]
    group_of = [group for group, size in enumerate(sizes) for _ in range(size)]
    waiting = deque(range(len(sizes)))
    for outcome in found:
        done[group_of[outcome.number]].append(outcome)
        ready = waiting if in_order else deque([group_of[outcome.number]])
        while ready and len(done[ready[0]]) == sizes[ready[0]]:
            group = ready.popleft()
            yield group, sorted(done[group])
            done[group] = []
