"""The network: an encoder and a head."""

from torch import Tensor, nn

from asrkit.model.conformer import ConformerEncoder, EncoderState, StepOutput
from asrkit.model.head import Head


class Network(nn.Module):
    """An encoder with a head: computes from log mels the emissions that a search reads."""

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
    ) -> StepOutput:
        """Run the encoder's forward and the head. The output has the head's emissions."""
        frames, lengths, state = self.encoder(feats, lengths, state, chunk_size, right_context)
        return StepOutput(self.head.emissions(frames), lengths, state)
