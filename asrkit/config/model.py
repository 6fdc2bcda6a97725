"""The section `model`, whose parts check their options."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, model_validator

from asrkit.audio import build_frontend
from asrkit.config.bounds import AutoOrOff, Section
from asrkit.config.checks import needs
from asrkit.config.kinds import AnyFrontend, KindConfig, OneOf, usually
from asrkit.config.running import NumMels
from asrkit.context import FrameRate, rate_of
from asrkit.model import heads, positions, subsampling
from asrkit.model.heads import build_head
from asrkit.model.positions import build_positions
from asrkit.model.subsampling import build_subsampling

CONFORMER = needs("model.layer", "conformer")
AnyPosition = Annotated[KindConfig, OneOf(KindConfig, positions.KINDS, "relative")]
AnySubsampling = Annotated[KindConfig, OneOf(KindConfig, subsampling.KINDS, "conv4")]
AnyHead = Annotated[KindConfig, OneOf(KindConfig, heads.KINDS, "ctc")]


class ModelConfig(Section):
    num_mels: NumMels = 80
    """F, mel bins of a feature frame."""
    dim: Annotated[int, Field(ge=2, le=8192, multiple_of=2)] = 256
    """D, width of the encoder; a multiple of `num_heads`."""
    num_heads: Annotated[int, Field(ge=1, le=256)] = 4
    """H, attention heads."""
    num_layers: Annotated[int, Field(ge=1, le=256)] = 12
    """L, layers."""
    ffn_dim: Annotated[int, Field(ge=1, le=65536)] = 2048
    """Width of the feed-forward layers."""
    kernel_size: Annotated[int, Field(ge=2, le=1024), CONFORMER] = 15
    """K, encoder frames of the causal convolutions."""
    dropout: Annotated[float, Field(strict=False, ge=0.0, lt=1.0)] = 0.1
    """Dropout probability of all layers."""
    frontend: AnyFrontend = usually("kaldi")
    """Features, a kind with its options: kaldi, with `low_frequency` and `high_frequency` in Hz
    (8000 if null; 4000 for recordings at 8 kHz) and `snip_edges`; slaney, which is NeMo's;
    sherpa_nemo, which sherpa-onnx computes for models of NeMo; or whisper, with `floor` (the lowest
    log10 of an energy). Options without a kind are kaldi's. For sherpa-onnx see docs/export.md."""
    subsampling: AnySubsampling = usually("conv4")
    """Subsampling, a kind with its options. conv4 makes an encoder frame of 4 feature frames, conv8
    of 8. conv4_valid, conv6_valid and conv8_valid have no padding, and see 3, 5 and 7 feature
    frames more. whisper makes one of 2, sees one more, and has no options. Options of the others:
    `channels` (S; `dim` if null). For conv4 and conv8 `pad_stages` (zeros
    around a stream as in NeMo). For conv4 `separable` (a ninth of the second convolution's
    arithmetic)."""
    position: AnyPosition = usually("relative")
    """Position encoding, a kind with its options: docs/positions.md."""
    head: AnyHead = usually("ctc")
    """Head, encoder frames to labels: ctc, or transducer with its options: docs/heads.md."""
    conv_norm: Annotated[Literal["layer_norm", "affine"], CONFORMER] = "layer_norm"
    """Norm in the convolutions. affine is a scale and a bias for each channel, the form of a
    trained BatchNorm."""
    conv_padding: Annotated[Literal["depthwise", "pointwise"], CONFORMER] = "depthwise"
    """Layer of the convolutions whose input is padded with zeros before a stream."""
    after_norm: bool = False
    """Add a LayerNorm after the last layer; layers have their own in any case."""
    layer: Literal["conformer", "transformer"] = "conformer"
    """Layers: Conformer's, or those of Whisper's encoder, which have no convolution."""
    kernels: AutoOrOff = "off"
    """Attention on NVIDIA GPUs: auto uses asrkit's own kernels (Triton) in half precision where
    possible. Run `make gpu-check` first. They do not change the weights."""

    @property
    def rate(self) -> FrameRate:
        """Relation of feature frames to encoder frames."""
        return rate_of(**self.subsampling.model_dump())

    @model_validator(mode="after")
    def _fits(self) -> "ModelConfig":
        if self.dim % self.num_heads:
            raise ValueError(f"dim {self.dim} must be a multiple of num_heads {self.num_heads}")
        parts: dict[str, Callable[[Any], object]] = {  # each part checks its own options
            "position": lambda kind: build_positions(kind, self.dim, self.num_heads, 1),
            "subsampling": lambda kind: build_subsampling(kind, self.num_mels, self.dim),
            "head": lambda kind: build_head(kind, self.dim, 2),
            "frontend": lambda kind: build_frontend(kind, self.num_mels),
        }
        for part, build in parts.items():
            try:
                with torch.device("meta"):
                    build(getattr(self, part).model_dump())
            except ValueError as error:
                raise ValueError(f"{part}: {error}") from None
        return self
