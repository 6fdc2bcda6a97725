"""The network: an encoder and a head, and its streaming step."""

from typing import NamedTuple

from torch import Tensor, nn

from asrkit.model.conformer import ConformerEncoder, EncoderState
from asrkit.model.context import FULL_CONTEXT, Context
from asrkit.model.head import Head
from asrkit.model.streaming import EncoderStep


class NetworkOutput(NamedTuple):
    """The output of one step of B streams."""

    frames: Tensor  # (B, E, V), output of the head; log-probabilities for CTC
    lengths: Tensor  # (B,) int64, valid frames of this step
    state: EncoderState


class Network(nn.Module):
    """An encoder with a head: computes from log mels the frames that a search reads."""

    def __init__(self, encoder: ConformerEncoder, head: Head) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def init_state(self, batch_size: int, left_context: int) -> EncoderState:
        return self.encoder.init_state(batch_size, left_context)

    def forward(
        self,
        feats: Tensor,
        lengths: Tensor,
        state: EncoderState,
        chunk_size: int,
        right_context: int = 0,
    ) -> NetworkOutput:
        """Run the encoder's forward and the head. The head's frames are (B, E, V)."""
        encoded, lengths, state = self.encoder(feats, lengths, state, chunk_size, right_context)
        return NetworkOutput(self.head.frames(encoded), lengths, state)


class NetworkStep(nn.Module):
    """`EncoderStep` with the head: computes from features the frames that a search reads."""

    def __init__(self, network: Network, context: Context) -> None:
        super().__init__()
        self.encoder, self.head = EncoderStep(network.encoder, context), network.head

    def init_state(self, batch_size: int) -> EncoderState:
        return self.encoder.init_state(batch_size)

    def forward(self, feats: Tensor, lengths: Tensor, state: EncoderState) -> NetworkOutput:
        """(B, T, F), (B,) and the past -> NetworkOutput."""
        encoded, lengths, state = self.encoder(feats, lengths, state)
        return NetworkOutput(self.head.frames(encoded), lengths, state)


class FullContextStep(nn.Module):
    """`NetworkStep` in full context. A step is a whole recording, so no table can be kept."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def init_state(self, batch_size: int) -> EncoderState:
        return self.network.init_state(batch_size, 0)

    def forward(self, feats: Tensor, lengths: Tensor, state: EncoderState) -> NetworkOutput:
        """(B, T, F), (B,) and the initial state -> NetworkOutput."""
        return self.network(feats, lengths, state, FULL_CONTEXT)
