"""The network: an encoder and a head."""

from torch import nn

from asrkit.model.conformer import ConformerEncoder
from asrkit.model.head import Head


class Network(nn.Module):
    """An encoder with a head. `Step` computes from log mels the emissions that a search reads."""

    def __init__(self, encoder: ConformerEncoder, head: Head) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head
