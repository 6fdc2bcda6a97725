"""An encoder's step with its context fixed: what streams and what is exported."""

import torch
from torch import Tensor, nn

from asrkit.model.conformer import ConformerEncoder, EncoderOutput, EncoderState, PositionTables


class EncoderStep(nn.Module):
    """An encoder's step for one chunk size, left and right context: what streams, is exported.

    What does not depend on the input, the position tables, is computed once, here. The weights
    are shared with `encoder`; make a new step after changing them.
    """

    frame_table: Tensor
    layer_tables: Tensor  # (L, ...)

    def __init__(
        self,
        encoder: ConformerEncoder,
        chunk_size: int,
        left_context: int,
        right_context: int = 0,
    ) -> None:
        super().__init__()
        self.encoder, self.chunk_size, self.left_context = encoder, chunk_size, left_context
        self.right_context = right_context
        with torch.no_grad():
            tables = encoder.tables(left_context, chunk_size + right_context)
        self.register_buffer("frame_table", tables.frames, persistent=False)
        self.register_buffer("layer_tables", tables.layers, persistent=False)

    def tables(self) -> PositionTables:
        return PositionTables(self.frame_table, self.layer_tables)

    @torch.jit.export
    def init_state(self, batch_size: int) -> EncoderState:
        return self.encoder.init_state(batch_size, self.left_context)

    def forward(self, feats: Tensor, lengths: Tensor, state: EncoderState) -> EncoderOutput:
        """The encoder's forward; what is exported or compiled takes whole chunks alone."""
        chunk_size, ahead, tables = self.chunk_size, self.right_context, self.tables()
        if not torch.jit.is_scripting():  # noqa: SIM102, or TorchScript would compile it
            if (
                self.encoder.num_frames(feats.size(1)) < chunk_size
                and not torch.compiler.is_compiling()
            ):
                # The padding of a long chunk would cost its square.
                chunk_size, ahead = self.encoder.block_size(chunk_size, feats.size(1)), 0
                layer_tables = self.encoder.layer_tables(self.left_context, chunk_size)
                tables = PositionTables(self.frame_table, layer_tables)
        layers, lengths, state = self.encoder.step(feats, lengths, state, chunk_size, ahead, tables)
        return EncoderOutput(layers[-1], lengths, state)
