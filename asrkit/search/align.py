"""When the tokens of a known text were said, and how late a search wrote its own."""

import itertools
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from asrkit.errors import UserError
from asrkit.search.blank import is_quiet
from asrkit.search.hypothesis import NOTHING, Hypothesis, Ranked


class AlignmentError(UserError):
    """A text that audio cannot hold."""


class ForcedAlignment:
    """A search that knows the text and finds its times; a stream has none before it ends.

    Args:
        tokens: (U,), without blanks.
        blank: id of the blank.
    """

    def __init__(self, tokens: list[int], blank: int = 0) -> None:
        self.tokens, self.blank = tokens, blank

    def start(self) -> tuple[Tensor, ...]:
        return ()

    def step(self, state: tuple[Tensor, ...], log_probs: Tensor) -> tuple[Tensor, ...]:
        """The state after (E, V) more frames: all of them."""
        return (*state, log_probs)

    def quiet(self, log_probs: Tensor) -> list[bool]:
        return is_quiet(log_probs, self.blank, 0.0)

    def partial(self, state: tuple[Tensor, ...]) -> Hypothesis:
        return NOTHING

    def best(self, state: tuple[Tensor, ...]) -> Hypothesis:
        """The likeliest path.

        Raises:
            AlignmentError: if the tokens need more frames than there are.
        """
        needed, there = frames_needed(self.tokens), sum(map(len, state))
        found = align(torch.cat(state), self.tokens, self.blank) if state else None
        if found is None:
            raise AlignmentError(
                f"the text is too long for the audio: its {len(self.tokens)} tokens need {needed} "
                f"frames or more, but there are {there}"
            )
        return found

    def nbest(self, state: tuple[Tensor, ...]) -> list[Ranked]:
        """None: there is one text."""
        return []


def frames_needed(tokens: list[int]) -> int:
    """CTC needs a frame for each token, and a blank between equal ones."""
    return len(tokens) + sum(a == b for a, b in itertools.pairwise(tokens))


def align(log_probs: Tensor, tokens: list[int], blank: int = 0) -> Hypothesis | None:
    """The likeliest CTC path of these tokens (forced alignment, by torchaudio).

    Args:
        log_probs: (E, V).
        tokens: (U,), without blanks.
        blank: id of the blank.

    Returns:
        The tokens with their frames; None if they need more frames than there are, or a frame is
        not a number.
    """
    if frames_needed(tokens) > len(log_probs) or log_probs.isnan().any():
        return None
    if not tokens:
        return NOTHING
    from torchaudio.functional import forced_align, merge_tokens

    path, scores = forced_align(
        log_probs[None].float().cpu(), torch.tensor([tokens], dtype=torch.int32), blank=blank
    )
    spans = merge_tokens(path[0], scores[0].exp(), blank)
    return Hypothesis(
        tuple(tokens),
        tuple(span.start for span in spans),
        tuple(span.end for span in spans),
        tuple(
            float(log_probs[s.start : s.end, t].max().exp())
            for s, t in zip(spans, tokens, strict=True)
        ),
    )


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
    reference: Hypothesis, hypothesis: Hypothesis, chunk_size: int, num_frames: int
) -> tuple[list[int], list[int]]:
    """Delays of one utterance's tokens in frames, and of its last token (or of none).

    Args:
        reference: the forced alignment of what was said.
        hypothesis: of the search, in chunks of `chunk_size`.
        chunk_size: C; all frames from there up.
        num_frames: E, of the utterance: its end completes the last chunk.
    """
    late = {}
    for i, j in agreeing(reference.tokens, hypothesis.tokens):
        begin = hypothesis.starts[j]
        written = min(num_frames, begin - begin % chunk_size + chunk_size)
        late[i] = written - reference.ends[i]
    last = len(reference.tokens) - 1
    return list(late.values()), [late[last]] if last in late else []


def agreeing(
    reference: tuple[int, ...] | tuple[str, ...], hypothesis: tuple[int, ...] | tuple[str, ...]
) -> list[tuple[int, int]]:
    """Index pairs of the tokens or words that an alignment with the fewest errors leaves equal."""
    import jiwer

    if not reference or not hypothesis:
        return []
    said, written = (" ".join(map(str, tokens)) for tokens in (reference, hypothesis))
    pairs = []
    for part in jiwer.process_words(said, written).alignments[0]:
        if part.type == "equal":
            width = part.ref_end_idx - part.ref_start_idx
            pairs += [(part.ref_start_idx + k, part.hyp_start_idx + k) for k in range(width)]
    return pairs


def summarize(tokens: list[int], last: list[int], frame_ms: int) -> Delay | None:
    """The delays of a corpus in frames, as `delays` gives them; None where there are none."""
    if not tokens:
        return None
    median, p90 = (float(frames) * frame_ms for frames in np.percentile(tokens, [50, 90]))
    mean_of_last = float(np.mean(last)) * frame_ms if last else None
    return Delay(float(np.mean(tokens)) * frame_ms, median, p90, mean_of_last)
