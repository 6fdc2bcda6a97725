"""The section `context`: the contexts of training, and those of decoding."""

from typing import Annotated

from pydantic import Field

from asrkit.config.bounds import ChunkSize, LeftContext, RightContext, Section, Share
from asrkit.config.checks import Needs, needs
from asrkit.context import FULL, Context

CHUNKS = Needs(
    "context.full_share", "below 1",
    lambda c: c.context.full_share < 1.0 or c.training.views == "full_and_chunks",
)  # fmt: skip


class ContextConfig(Section):
    """Chunk sizes and left contexts in encoder frames: of 40 ms with conv4, of 80 ms with conv8."""

    chunk_sizes: Annotated[list[ChunkSize], Field(max_length=64)] = [4, 8, 16, 25]
    """Chunk sizes drawn in training, besides full context; repeat a size to draw it more often."""
    left_contexts: Annotated[list[LeftContext], Field(min_length=1, max_length=64), CHUNKS] = [64]
    """Left contexts drawn in training."""
    right_contexts: Annotated[list[RightContext], Field(min_length=1, max_length=64), CHUNKS] = [0]
    """Right contexts drawn in training with the chunks: encoder frames after its chunk that a frame
    sees. They improve live text and delay it by their length. A chunk of C frames with R after it
    takes 1 + R/C times as long."""
    full_share: Annotated[Share, needs("training.views", "one", "same")] = 0.5
    """Share of the batches in full context."""
    chunk_size: ChunkSize = 16
    """Default chunk size of decoding: 16 frames are 640 ms with conv4."""
    left_context: LeftContext = 64
    """Default left context of decoding."""
    right_context: RightContext = 0
    """Default right context of decoding."""

    @property
    def live(self) -> Context:
        """Default context of decoding."""
        return Context(self.chunk_size, self.left_context, self.right_context)

    @property
    def validated(self) -> list[Context]:
        """Contexts of validation: full context if trained, and each chunk size once."""
        left, right = max(self.left_contexts), self.right_context
        chunks = [Context(each, left, right) for each in dict.fromkeys(self.chunk_sizes)]
        return [FULL, *chunks] if self.full_share > 0 else chunks
