"""How late a search writes its tokens."""

from typing import NamedTuple

import numpy as np

from asrkit.evaluation.wer import agreeing
from asrkit.model import Context
from asrkit.search import Hypothesis


class Delay(NamedTuple):
    """How late tokens are written, in milliseconds after their end by forced alignment.

    A token is taken for written when the chunk of its first frame is complete, though a search that
    weighs several texts may write it later; the time to compute it is not counted. Only tokens that
    agree with the reference have a delay.
    """

    mean: float
    median: float
    p90: float
    last: float | None  # mean of the last tokens of their utterances, if any was right


def delays(
    reference: Hypothesis,
    hypothesis: Hypothesis,
    context: Context,
    num_frames: int,
) -> tuple[list[int], list[int]]:
    """Delays of one utterance's tokens in frames, and of its last token (or of none).

    Args:
        reference: its tokens by forced alignment.
        hypothesis: of the search, in this context.
        context: C and R: a chunk waits for the R frames after it.
        num_frames: E, of the utterance: its end completes the last chunk.
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
    """The delays of a corpus in frames, as `delays` gives them; None where there are none."""
    if not tokens:
        return None
    median, p90 = (float(frames) * frame_ms for frames in np.percentile(tokens, [50, 90]))
    mean_of_last = float(np.mean(last)) * frame_ms if last else None
    return Delay(float(np.mean(tokens)) * frame_ms, median, p90, mean_of_last)
