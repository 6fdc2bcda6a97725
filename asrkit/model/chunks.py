"""Frames as blocks: a chunk of C frames, and the R frames of right context after the chunk.

Right-context frames are computed anew for each chunk that sees them. Their values differ from
those in their own chunk, which sees further. So a block has C + R frames, and only the C frames of
the chunk are returned.
"""

import torch
from torch import Tensor

from asrkit.context import Context


def windows(frames: Tensor, size: int, stride: int) -> Tensor:
    """(B, H, T, X) -> (B, H, n, W, X): windows of W = `size` frames, a new one every `stride`."""
    if size == frames.size(2):  # a symbolic length (in an export) cannot be unfolded
        return frames.unsqueeze(2)
    return frames.unfold(2, size, stride).transpose(3, 4)


def blocks_of(frames: Tensor, chunk_size: int, ahead: int) -> Tensor:
    """(B, n·C + R, X) -> (B, n·(C + R), X): each chunk with the R frames after it."""
    if ahead == 0:
        return frames
    return windows(frames.unsqueeze(1), chunk_size + ahead, chunk_size).flatten(1, 3)


def chunk_frames(blocks: Tensor, block: int, ahead: int) -> Tensor:
    """(B, n·(C + R), X) -> (B, n·C, X): the blocks without their right context."""
    return split_ahead(blocks.unsqueeze(1), block, ahead)[0].squeeze(1)


def split_ahead(blocks: Tensor, block: int, ahead: int) -> tuple[Tensor, Tensor | None]:
    """(B, H, n·(C + R), X) -> the chunks (B, H, n·C, X), and their right context (B, H, n, R, X).

    The right context is None with R = 0. The sizes of blocks are constants of an export; divided
    by a number of blocks they would be long expressions.

    Args:
        block: C + R.
    """
    if ahead == 0:
        return blocks, None
    blocks = blocks.unflatten(2, (-1, block))  # (B, H, n, C+R, X)
    chunk_size = block - ahead
    return blocks[:, :, :, :chunk_size].flatten(2, 3), blocks[:, :, :, chunk_size:]


def joined_windows(frames: Tensor, ahead: Tensor | None, block: int, window: int) -> Tensor:
    """Return the windows of blocks: M frames before each chunk, the chunk, its right context.

    Args:
        frames: (B, H, M + n·C, X), M past frames and the frames of the chunks.
        ahead: (B, H, n, R, X), right context of each chunk; None for R = 0.
        block: C + R.
        window: W = M + C + R.

    Returns:
        (B, H, n, W, X).
    """
    if ahead is None:
        return windows(frames, window, block)
    seen = ahead.size(3)
    return torch.cat([windows(frames, window - seen, block - seen), ahead], dim=3)


def valid_keys(position: Tensor, lengths: Tensor, context: Context, frames: int) -> Tensor:
    """Return which keys of each block are frames of their row's stream: (B, 1, n, 1, M+C+R) bool.

    Key j of block c is frame position - M + c·C + j of the row. Keys before frame 0 (the initial
    state) and from frame position + length on (padding) are not valid.
    """
    starts = torch.arange(0, frames, context.chunk_size, device=position.device)  # (n,)
    size = context.left + context.chunk_size + context.right  # W
    window = torch.arange(size, device=position.device)  # (W,)
    offsets = starts[:, None] + window - context.left  # (n, W) relative to the step's start
    before_end = offsets < lengths[:, None, None]  # (B, n, W)
    after_start = offsets >= -position[:, None, None]
    return (before_end & after_start)[:, None, :, None]
