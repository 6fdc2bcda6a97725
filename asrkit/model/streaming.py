"""A step of an encoder in a fixed context, for streaming and export."""

import torch
from torch import Tensor, nn

from asrkit.model.conformer import ConformerEncoder, EncoderOutput, EncoderState, PositionTables
from asrkit.model.context import Context, fitted, num_frames


class KeptTable(nn.Module):
    """A stored table that is not a weight."""

    table: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table, persistent=False)


class EncoderStep(nn.Module):
    """A step of an encoder in one context, for streaming and export.

    The position tables do not depend on the input and are computed once, here. The weights are
    those of `encoder`; make a new step after changing them.
    """

    context: Context
    frame_table: Tensor

    def __init__(self, encoder: ConformerEncoder, context: Context) -> None:
        super().__init__()
        self.encoder, self.context = encoder, context
        with torch.no_grad():
            tables = encoder.tables(context)
        self.register_buffer("frame_table", tables.frames, persistent=False)
        self.layer_tables = nn.ModuleList([KeptTable(table) for table in tables.layers])

    @torch.jit.export
    def init_state(self, batch_size: int) -> EncoderState:
        return self.encoder.init_state(batch_size, self.context.left)

    def tables(self) -> PositionTables:
        layers: list[Tensor] = []
        for kept in self.layer_tables:
            layers.append(kept.table)  # type: ignore[arg-type]
        return PositionTables(self.frame_table, layers)

    def forward(self, feats: Tensor, lengths: Tensor, state: EncoderState) -> EncoderOutput:
        """Run the encoder's forward. An exported or compiled step accepts only whole chunks."""
        context, tables = self.context, self.tables()
        if not torch.jit.is_scripting():
            frames = num_frames(feats.size(1), self.encoder.rate)
            if frames < context.chunk_size and not torch.compiler.is_compiling():
                # Padding a short step to a long chunk would cost the square of the chunk.
                context = fitted(context, frames)
                tables = PositionTables(self.frame_table, self.encoder.layer_tables(context))
        run = self.encoder.run(feats, lengths, state, context, tables, None, 0)
        return EncoderOutput(run.encoded, run.lengths, run.state)
