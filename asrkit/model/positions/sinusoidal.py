"""The Transformer's sinusoidal absolute positions."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from asrkit.model.positions.base import FramePosition, frame_numbers
from asrkit.model.positions.distances import frequencies, waves
from asrkit.registry import refusal

LAYOUTS = ("mix", "sep", "tensor2tensor")


class SinusoidalPosition(FramePosition):
    """Kind `sinusoidal`: sines and cosines of the frame's index, added to the frame.

        y_t = sqrt(D) x_t + a·s_{stride·(t mod period)}
        s_t[2m], s_t[2m+1] = sin(t 10000^(-2m/D)), cos(t 10000^(-2m/D))

    Vaswani et al. 2017, section 3.5. The angles of any t are computed from the frame counter in
    float64. Published tables are limited in length, built on the CPU, or imprecise.

    Args:
        layout: "mix": sines and cosines alternate; "sep": all sines, then all cosines.
            "tensor2tensor": as "sep", with the frequencies 10000^(-m/(D/2-1)) of that library and
            of Whisper.
        embedding_scale: multiply the frames with sqrt(D), as in the paper.
        learned_scale: a is learned (Li et al. 2019); if not, it stays `initial_scale`.
        period: frames after which the positions repeat, so that an endless stream has none that
            training did not reach; None: they never repeat.
        stride: positions from a frame to the next.
    """

    def __init__(
        self,
        dim: int,
        layout: Literal["mix", "sep", "tensor2tensor"] = "mix",
        embedding_scale: bool = True,
        learned_scale: bool = False,
        initial_scale: float = 1.0,
        period: int | None = None,
        stride: int = 1,
    ) -> None:
        super().__init__(dim)
        if layout not in LAYOUTS:
            raise ValueError(f"layout {refusal(layout, LAYOUTS)}")
        if layout == "tensor2tensor" and dim < 4:
            raise ValueError(f"layout tensor2tensor needs dim of at least 4, got {dim}")
        self.cycle, self.stride = period or 0, stride
        self.sep, self.last = layout != "mix", layout == "tensor2tensor"
        self.frame_scale = math.sqrt(dim) if embedding_scale else 1.0
        scale = torch.tensor(float(initial_scale))  # a
        if learned_scale:
            self.scale = nn.Parameter(scale)
        else:
            self.register_buffer("scale", scale)

    def table(self, like: Tensor) -> Tensor:
        """Return the frequencies, (D/2,) in float64.

        They are not computed in `forward`, where the ONNX exporter rounds Python's numbers to
        float32: after a day of frames, angles would be wrong by a quarter of a degree and more.
        """
        return frequencies(self.dim, like.device, last=self.last)

    def forward(self, x: Tensor, position: Tensor, table: Tensor) -> Tensor:
        numbers = frame_numbers(x, position)  # (B, T)
        if self.cycle > 0:
            numbers = numbers % self.cycle
        vectors = waves(self.stride * numbers.flatten(), table)  # (B·T, D)
        if self.sep:
            vectors = torch.cat([vectors[:, 0::2], vectors[:, 1::2]], dim=1)
        return x * self.frame_scale + self.scale * vectors.to(x.dtype).unflatten(0, numbers.shape)
