"""The network, an encoder and a head, and its step in a fixed context."""

import torch
from torch import Tensor, nn

from asrkit.context import Context, num_frames
from asrkit.model.conformer import ConformerEncoder, EncoderState, StepOutput
from asrkit.model.head import Head


class Network(nn.Module):
    """An encoder with a head. `Step` computes from log mels the emissions that a search reads."""

    def __init__(self, encoder: ConformerEncoder, head: Head) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head


class KeptTable(nn.Module):
    """A stored table that is not a weight."""

    table: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table, persistent=False)


class Step(nn.Module):
    """A step of an encoder and its head in one context, for streaming and export.

    The position tables do not depend on the input and are computed once, here. In full context a
    step is a whole recording, so no table can be kept. The weights are those of `encoder` and
    `head`; make a new step after changing them.

    Args:
        head: head of the network; None: the step returns the frames of the encoder.
    """

    context: Context

    def __init__(self, encoder: ConformerEncoder, head: Head | None, context: Context) -> None:
        super().__init__()
        self.encoder, self.head, self.context = encoder, head, context
        with torch.no_grad():
            tables = [] if context.full else encoder.tables(context)
        self.kept = nn.ModuleList(KeptTable(table) for table in tables)

    @torch.jit.export
    def init_state(self, batch_size: int) -> EncoderState:
        return self.encoder.init_state(batch_size, self.context.left)

    def tables(self) -> list[Tensor] | None:
        """Return the kept tables; None in full context."""
        tables: list[Tensor] = [kept.table for kept in self.kept]  # type: ignore[misc]
        return tables if len(tables) > 0 else None

    def forward(self, feats: Tensor, lengths: Tensor, state: EncoderState) -> StepOutput:
        """Run the encoder's forward and the head. An exported or compiled step accepts only whole
        chunks."""
        tables = self.tables()
        if not torch.jit.is_scripting():
            frames = num_frames(feats.size(1), self.encoder.rate)
            if frames < self.context.chunk_size and not torch.compiler.is_compiling():
                tables = None  # padding a short step to a long chunk would cost the chunk's square
        output, _ = self.encoder.run(feats, lengths, state, self.context, tables, None, 0)
        if self.head is not None:
            output = StepOutput(self.head.emissions(output.frames), output.lengths, output.state)
        return output
