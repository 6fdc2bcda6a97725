"""A transducer head (Graves 2012): a predictor reads the labels so far, a joiner adds its output
to a frame and gives the next label or a blank.

The predictor's past is tokens: its state goes in and comes out, and the search keeps it.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from asrkit.model.head import BLANK, CTCHead, Head
from asrkit.model.transducer_loss import transducer_loss

PredictorState = tuple[Tensor, ...]  # of B streams, batch first, of fixed shapes

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}


class LSTMPredictor(nn.Module):
    """An LSTM over all labels so far. The state is (h, c), each (B, L, H).

    Args:
        vocab_size: V, with the blank, whose embedding is zero: it is the input before any label.
    """

    def __init__(self, vocab_size: int, dim: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, dim, padding_idx=BLANK)
        between = dropout if num_layers > 1 else 0.0
        self.lstm = nn.LSTM(dim, dim, num_layers, batch_first=True, dropout=between)

    def start(self, batch_size: int) -> PredictorState:
        """Return the state before the blank that stands before all labels."""
        sizes = [batch_size, self.lstm.num_layers, self.lstm.hidden_size]
        zeros = self.embed.weight.new_zeros(sizes)
        return zeros, zeros

    def forward(self, tokens: Tensor, state: PredictorState) -> tuple[Tensor, PredictorState]:
        """(B, U) tokens and the state before them -> (B, U, H), and the state after them."""
        past = state[0].transpose(0, 1).contiguous(), state[1].transpose(0, 1).contiguous()
        output, (hidden, cell) = self.lstm(self.embed(tokens), past)
        # torch.export takes them for (L, 1, B, H).
        sizes = [self.lstm.num_layers, tokens.size(0), self.lstm.hidden_size]
        return output, (hidden.view(sizes).transpose(0, 1), cell.view(sizes).transpose(0, 1))


class StatelessPredictor(nn.Module):
    """The embeddings of the last C labels, side by side (Ghodsi et al. 2020, with NeMo's widths).

    The state is (B, C - 1), the labels before. The latest label has half of the width and what the
    others leave.

    Args:
        vocab_size: V, with the blank, whose embeddings are zero.
        norm: normalise the output, as a LayerNorm without weights.
    """

    def __init__(self, vocab_size: int, dim: int, context: int, norm: bool = False) -> None:
        super().__init__()
        self.norm = norm
        share = dim // 2 // context
        if context > 1 and not share:
            raise ValueError(f"predictor_dim must be {2 * context} or more, got {dim}")
        self.widths = [dim - (context - 1) * share] + [share] * (context - 1)  # the latest first
        self.embeds = nn.ModuleList(
            nn.Embedding(vocab_size, width, padding_idx=BLANK) for width in self.widths
        )

    def start(self, batch_size: int) -> PredictorState:
        """Return the state before the blank that stands before all labels."""
        like: Tensor = self.embeds[0].weight  # type: ignore[assignment]
        blanks = torch.zeros([batch_size, len(self.widths) - 1], dtype=torch.int64)  # BLANK is 0
        return (blanks.to(like.device),)

    def forward(self, tokens: Tensor, state: PredictorState) -> tuple[Tensor, PredictorState]:
        """(B, U) tokens and the state before them -> (B, U, H), and the state after them."""
        known, size = torch.cat([state[0], tokens], dim=1), tokens.size(1)
        before = known.size(1) - size
        parts = [
            embed(known[:, before - back : before - back + size])
            for back, embed in enumerate(self.embeds)
        ]
        output = torch.cat(parts, dim=2)
        if self.norm:
            output = functional.layer_norm(output, [output.size(2)])
        return output, (known[:, size:],)


def adapter(dim: int, width: int | None) -> nn.Module:
    """Return two linear layers with a ReLU between them, (…, D) -> (…, D); nothing for None."""
    if width is None:
        return nn.Identity()
    return nn.Sequential(nn.Linear(dim, width), nn.ReLU(), nn.Linear(width, dim))


class TransducerHead(Head):
    """A predictor, a joiner, and a CTC layer that shares the loss.

    A label's logits are out(activation(encoder(frame) + predicted(labels so far))). Training sums
    over all alignments of the labels with the frames.

    Args:
        predictor: lstm, which reads all labels so far, or stateless, which reads `context`.
        context: labels that a stateless predictor reads.
        predictor_norm: normalise the output of a stateless predictor.
        joint_dim: J, width of the joiner.
        activation: activation of the joiner: relu, tanh or sigmoid.
        ctc_weight: share of a CTC layer's loss in the loss; 0 builds no CTC layer.
        max_symbols: most labels that a search writes in a frame.
        dropout: dropout probability of the predictor's output and in the joiner.
        adapter_dim: width of two linear layers between the encoder and the head, as in NeMo's
            models with a language prompt; None builds none.
    """

    FREE = ("ctc_weight", "max_symbols", "dropout")

    def __init__(
        self,
        dim: int,
        vocab_size: int,
        predictor: Literal["lstm", "stateless"] = "lstm",
        predictor_layers: int = 1,
        predictor_dim: int = 256,
        context: int = 2,
        predictor_norm: bool = False,
        joint_dim: int = 256,
        activation: Literal["relu", "tanh", "sigmoid"] = "relu",
        ctc_weight: float = 0.3,
        max_symbols: int = 10,
        dropout: float = 0.2,
        adapter_dim: int | None = None,
    ) -> None:
        super().__init__()
        for name, share in (("ctc_weight", ctc_weight), ("dropout", dropout)):
            if not 0.0 <= share < 1.0:
                raise ValueError(f"{name} must be from 0 to below 1, got {share}")
        self.vocab_size, self.max_symbols, self.ctc_weight = vocab_size, max_symbols, ctc_weight
        self.activation = activation
        self.predictor: LSTMPredictor | StatelessPredictor
        if predictor == "lstm":
            self.predictor = LSTMPredictor(vocab_size, predictor_dim, predictor_layers, dropout)
        else:
            self.predictor = StatelessPredictor(vocab_size, predictor_dim, context, predictor_norm)
        self.adapter = adapter(dim, adapter_dim)
        self.from_encoder = nn.Linear(dim, joint_dim)
        self.from_predictor = nn.Linear(predictor_dim, joint_dim)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(joint_dim, vocab_size)
        self.ctc = CTCHead(dim, vocab_size) if ctc_weight > 0.0 else None

    def emissions(self, encoded: Tensor) -> Tensor:
        """Return the encoder's frames, after the adapter if there is one: (B, E, D)."""
        return self.adapter(encoded)

    def loss(
        self, emissions: Tensor, lengths: Tensor, tokens: Tensor, token_lengths: Tensor
    ) -> Tensor:
        """Return the weighted sum of the transducer's loss and the CTC layer's.

        The logits take 4·B·E·(U + 1)·V bytes and their gradient as much.
        """
        logits = self.join(self.project(emissions)[:, :, None], self.outputs(tokens)[:, None])
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        loss = transducer_loss(logits, tokens, lengths, token_lengths)
        if self.ctc is None:
            return loss
        log_probs = self.ctc.emissions(emissions).float()
        ctc = self.ctc.loss(log_probs, lengths, tokens, token_lengths)
        return (1.0 - self.ctc_weight) * loss + self.ctc_weight * ctc

    def layer_head(self) -> Head:
        """Return the CTC layer: a transducer's loss of every layer would cost its memory again."""
        assert self.ctc is not None  # the configuration is checked
        return self.ctc

    def ctc_layer(self) -> CTCHead | None:
        """Return the CTC layer; None without one, or if an adapter stands before it."""
        return self.ctc if isinstance(self.adapter, nn.Identity) else None

    def frames_needed(self, tokens: Sequence[int]) -> int:
        """Return the frames that a search needs to write them, or that the CTC layer needs."""
        if self.ctc is not None:
            return self.ctc.frames_needed(tokens)
        return max(1, -(-len(tokens) // self.max_symbols))

    @torch.no_grad()
    def copy_labels(self, other: Head, old: list[int], new: list[int]) -> None:
        """Copy the weights of labels in predictor, joiner and CTC layer; all others whole.

        A layer that only one of the heads has is left as it is.
        """
        assert isinstance(other, TransducerHead)
        weights, sources = self.state_dict(), other.state_dict()
        for name in weights.keys() & sources.keys():
            if name.startswith(("predictor.embed", "out.", "ctc.")):
                weights[name][new] = sources[name][old]
            else:
                weights[name].copy_(sources[name])

    def start(self, batch_size: int) -> PredictorState:
        """Return the predictor's state before the blank that stands before all labels."""
        return self.predictor.start(batch_size)

    def predict(self, tokens: Tensor, state: PredictorState) -> tuple[Tensor, PredictorState]:
        """(B,) tokens and the state before them -> (B, J), and the state after them."""
        output, state = self.predictor(tokens[:, None], state)
        return self.from_predictor(self.dropout(output[:, 0])), state

    def outputs(self, tokens: Tensor) -> Tensor:
        """Return `predict`'s outputs after the initial blank and each token.

        (B, U) -> (B, U + 1, J)
        """
        tokens = functional.pad(tokens, (1, 0), value=BLANK)
        predicted, _ = self.predictor(tokens, self.start(len(tokens)))
        return self.from_predictor(self.dropout(predicted))

    def project(self, frames: Tensor) -> Tensor:
        """Return the joiner's share of frames: (…, D) -> (…, J)."""
        return self.from_encoder(frames)

    def join(self, frames: Tensor, predicted: Tensor) -> Tensor:
        """Return logits (…, V) of projected frames (…, J) and predictor outputs (…, J)."""
        hidden = ACTIVATIONS[self.activation](frames + predicted)
        return self.out(self.dropout(hidden))


class PredictorStep(nn.Module):
    """The predictor of a head as a network of its own, for exports."""

    def __init__(self, head: TransducerHead) -> None:
        super().__init__()
        self.head = head

    def forward(self, tokens: Tensor, state: PredictorState) -> tuple[Tensor, PredictorState]:
        """(B,) tokens and the state before them -> (B, J), and the state after them."""
        return self.head.predict(tokens, state)


class JoinerStep(nn.Module):
    """The joiner of a head as a network of its own, for exports."""

    def __init__(self, head: TransducerHead) -> None:
        super().__init__()
        self.head = head

    def forward(self, frames: Tensor, predicted: Tensor) -> Tensor:
        """Return logits (N, V) of encoder frames (N, D) and predictor outputs (N, J)."""
        return self.head.join(self.head.project(frames), predicted)
