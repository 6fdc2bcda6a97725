"""Delays of tokens: the time from a token's end until the search writes it."""

from typing import NamedTuple

import numpy as np

from asrkit.context import Context
from asrkit.evaluation.wer import agreeing
from asrkit.search import Hypothesis


class Delay(NamedTuple):
    """Delays of tokens, in milliseconds after their end by forced alignment.

    A token counts as written when the chunk of its first frame is complete. A search with several
    hypotheses may write it later, and computing time is not counted. Only tokens that agree with
    the reference have a delay.
    """

    mean: float
    median: float
    p90: float
    last: float | None  # mean over the last tokens of utterances; None if all were wrong


def delays(
    reference: Hypothesis, hypothesis: Hypothesis, context: Context, num_frames: int
) -> tuple[list[int], list[int]]:
    """Return the delays in frames of an utterance's tokens, and of its last token if correct.

    Args:
        reference: tokens of the reference by forced alignment.
        hypothesis: result of the search in this context.
        context: C and R; a chunk waits for the R frames after it.
        num_frames: number of the utterance's frames E; its end completes the last chunk.
    """
    late = {}
    for i, j in agreeing(reference.tokens, hypothesis.tokens):
        begin = hypothesis.starts[j]
        chunk = begin // context.chunk_size
        written = min(num_frames, (chunk + 1) * context.chunk_size + context.right)
        late[i] = written - reference.ends[i]
    last = len(reference.tokens) - 1
    return list(late.values()), [late[last]] if last in late else []


def summarize(tokens: list[int], last: list[int], frame_ms: int) -> Delay | None:
    """Summarise the delays of a corpus, in frames as from `delays`; None without delays."""
    if not tokens:
        return None
    median, p90 = (float(frames) * frame_ms for frames in np.percentile(tokens, [50, 90]))
    mean_of_last = float(np.mean(last)) * frame_ms if last else None
    return Delay(float(np.mean(tokens)) * frame_ms, median, p90, mean_of_last)
