"""When the tokens of a known text were said, and how late a search wrote its own."""

import itertools

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
