"""Heads: a head computes the emissions that a search reads, and the loss of a text.

Only this file, its configuration and its searches know which head a network has.
"""

import itertools
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

BLANK = 0


class Head(nn.Module):
    """Base class of all heads.

    Attributes:
        vocab_size: V, including the blank.
        FREE: options on whose values no weight depends, except that one may build a layer more.
    """

    vocab_size: int
    FREE: ClassVar[tuple[str, ...]] = ()

    def emissions(self, encoded: Tensor) -> Tensor:
        """Return what a search reads: (B, E, D) -> (B, E, V), or (B, E, D) for a transducer."""
        raise NotImplementedError

    def loss(
        self, emissions: Tensor, lengths: Tensor, tokens: Tensor, token_lengths: Tensor
    ) -> Tensor:
        """Return the loss of each row's tokens in nats.

        Args:
            emissions: (B, E, V or D) from `emissions`.
            lengths: (B,) valid frames.
            tokens: (B, U).
            token_lengths: (B,) valid tokens.

        Returns:
            (B,); infinite for a row with fewer frames than `frames_needed`.
        """
        raise NotImplementedError

    def layer_head(self) -> "Head":
        """Return the head of the loss of layers before the last, and of the loss between views."""
        return self

    def ctc_layer(self) -> "CTCHead | None":
        """Return the CTC layer that reads the encoder's frames; None without one."""
        return None

    def frames_needed(self, tokens: Sequence[int]) -> int:
        """Return the smallest number of frames that can hold these tokens."""
        raise NotImplementedError

    def copy_labels(self, other: "Head", old: list[int], new: list[int]) -> None:
        """Copy the weights of labels `old` of another head to labels `new` of this head."""
        raise NotImplementedError


class CTCHead(Head, nn.Linear):
    """Connectionist temporal classification (Graves et al. 2006): a distribution over the labels
    and a blank in each frame.
    """

    def __init__(self, dim: int, vocab_size: int) -> None:
        super().__init__(dim, vocab_size)
        self.vocab_size = vocab_size

    def emissions(self, encoded: Tensor) -> Tensor:
        return self(encoded).log_softmax(dim=2)

    def loss(
        self, emissions: Tensor, lengths: Tensor, tokens: Tensor, token_lengths: Tensor
    ) -> Tensor:
        """Return the negative log-likelihood of the tokens, summed over all paths.

        Pass lengths on the CPU: torch's CTC loss reads them there, and would wait for a GPU.
        """
        return functional.ctc_loss(
            emissions.transpose(0, 1), tokens, lengths, token_lengths, BLANK, reduction="none"
        )

    def ctc_layer(self) -> "CTCHead":
        return self

    def frames_needed(self, tokens: Sequence[int]) -> int:
        """Return the number of tokens, plus one blank frame between each two equal neighbours."""
        return ctc_frames(tokens)

    @torch.no_grad()
    def copy_labels(self, other: Head, old: list[int], new: list[int]) -> None:
        assert isinstance(other, CTCHead)
        self.weight[new] = other.weight[old]
        self.bias[new] = other.bias[old]


def ctc_frames(tokens: Sequence[int]) -> int:
    """Return the length of the shortest CTC path: one frame for each token, and for each blank
    between equal tokens."""
    return len(tokens) + sum(a == b for a, b in itertools.pairwise(tokens))
