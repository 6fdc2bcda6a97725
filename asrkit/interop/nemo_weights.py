"""The weights of a NeMo checkpoint, under asrkit's names.

Four differences are folded into them: the scaling of the encoder's input, BatchNorm's running
statistics, the position of the blank, which is NeMo's last label, and a language prompt.
"""

from collections import Counter
from typing import Any

import torch
from torch import Tensor

from asrkit.audio import build_frontend
from asrkit.errors import shown
from asrkit.interop import nemo_transducer
from asrkit.interop.checkpoint import CheckpointError
from asrkit.interop.imported import fold_norm
from asrkit.interop.nemo_settings import check_head, folds_norm

BATCH_NORM_EPSILON = 1e-5
TRANSDUCER = ("decoder", "joint")  # parts of a hybrid that --head ctc leaves out
LAYER = {  # parts of a layer that both toolkits have: asrkit's names -> NeMo's
    "ffn1.norm": "norm_feed_forward1",
    "ffn1.expand": "feed_forward1.linear1",
    "ffn1.project": "feed_forward1.linear2",
    "attention_norm": "norm_self_att",
    "attention.out": "self_attn.linear_out",
    "convolution.norm": "norm_conv",
    "convolution.expand": "conv.pointwise_conv1",
    "convolution.depthwise": "conv.depthwise_conv",
    "convolution.project": "conv.pointwise_conv2",
    "ffn2.norm": "norm_feed_forward2",
    "ffn2.expand": "feed_forward2.linear1",
    "ffn2.project": "feed_forward2.linear2",
    "norm": "norm_out",
}


class Weights(dict[str, Tensor]):
    """NeMo's weights by name; each is used once."""

    def take(self, name: str) -> Tensor:
        """Remove and return a weight. Raises CheckpointError if it is missing."""
        if name not in self:
            raise CheckpointError(f"the weight {shown(name)} is missing")
        return self.pop(name)

    def take_part(self, ours: str, theirs: str, biased: bool = True) -> dict[str, Tensor]:
        """Remove the weight and the bias of a part, and return them under asrkit's name.

        Args:
            biased: whether the part must have a bias; otherwise a missing bias becomes zeros.
        """
        weight = self.take(f"{theirs}.weight")
        name = f"{theirs}.bias"
        bias = self.take(name) if biased or name in self else torch.zeros(weight.shape[:1])
        return {f"{ours}.weight": weight, f"{ours}.bias": bias}

    def left_out(self, transducer: bool) -> dict[str, int]:
        """Count the unused parameters by part.

        Args:
            transducer: whether the transducer of a hybrid is left out.
        """
        counts: Counter[str] = Counter()
        for name, tensor in self.items():
            part = name.partition(".")[0]
            if not transducer or part not in TRANSDUCER:
                raise CheckpointError(
                    f"weight {shown(name)} belongs to a part that asrkit does not have"
                )
            counts[part] += tensor.numel()
        return dict(counts)


def check_filters(weights: Weights, num_mels: int) -> None:
    """Raise CheckpointError if the checkpoint's window or filters differ from asrkit's."""
    frontend = build_frontend("slaney", num_mels)
    window: Tensor = frontend.window  # type: ignore[assignment]
    for name, own in (("fb", frontend.filters.T[None]), ("window", window)):
        found = weights.pop(f"preprocessor.featurizer.{name}", own)
        if found.shape != own.shape or not (found - own).abs().max() < 1e-6:
            raise CheckpointError(
                f"preprocessor.featurizer.{name} does not match the settings of the preprocessor"
            )


def subsampling_weights(
    weights: Weights, names: dict[str, str], scale: float | None
) -> dict[str, Tensor]:
    """Return the subsampling's weights; the output's scaling is folded into its last layer.

    Args:
        names: NeMo's names of the parts, by asrkit's.
        scale: factor of the output; None without scaling.
    """
    ours: dict[str, Tensor] = {}
    for own, name in names.items():
        ours |= weights.take_part(f"encoder.subsampling.{own}", f"encoder.pre_encode.{name}")
    if scale is not None:
        for part in ("weight", "bias"):
            ours[f"encoder.subsampling.out.{part}"] *= scale
    return ours


def layer_weights(weights: Weights, number: int, encoder: dict[str, Any]) -> dict[str, Tensor]:
    """Return a layer's weights."""
    own = name = f"encoder.layers.{number}"
    biased = encoder.get("use_bias", True) is not False
    ours: dict[str, Tensor] = {}
    for part, theirs in LAYER.items():
        always = biased or theirs.startswith("norm")
        ours |= weights.take_part(f"{own}.{part}", f"{name}.{theirs}", always)
    for part in ("expand", "project"):  # convolutions over one frame: linear layers in asrkit
        key = f"{own}.convolution.{part}.weight"
        ours[key] = ours[key].flatten(1)
    attention, position = f"{own}.attention", f"{own}.attention.position"
    parts = [
        weights.take_part(attention, f"{name}.self_attn.linear_{part}", biased)
        for part in ("q", "k", "v")
    ]
    for key in ("weight", "bias"):
        ours[f"{attention}.qkv.{key}"] = torch.cat([part[f"{attention}.{key}"] for part in parts])
    ours[f"{position}.projection.weight"] = weights.take(f"{name}.self_attn.linear_pos.weight")
    for key, theirs in (("content_bias", "pos_bias_u"), ("position_bias", "pos_bias_v")):
        bias = weights.take(f"{name}.self_attn.{theirs}")
        ours[f"{position}.{key}"] = bias[:, None, None]
    norm = weights.take_part(f"{own}.convolution.depthwise_norm", f"{name}.conv.batch_norm")
    if folds_norm(encoder):
        norm = folded(norm, weights, f"{name}.conv.batch_norm")
    return ours | norm


def folded(norm: dict[str, Tensor], weights: Weights, name: str) -> dict[str, Tensor]:
    """Fold a BatchNorm's running statistics into its scale and bias."""
    mean, variance = (weights.take(f"{name}.running_{part}") for part in ("mean", "var"))
    weights.pop(f"{name}.num_batches_tracked", None)
    if len({part.shape for part in (mean, variance, *norm.values())}) > 1:
        raise CheckpointError(f"the parts of {name} have different lengths")
    return fold_norm(norm, mean, variance, BATCH_NORM_EPSILON)


def adapter_weights(weights: Weights, dim: int, column: int) -> dict[str, Tensor]:
    """Return the layers between encoder and head, with a language prompt folded in.

    NeMo appends the one-hot vector of the language to every encoder frame, before two linear layers
    with a ReLU between them. So the language's column of the first layer is added to its bias.
    """
    parts = [weights.take_part(f"head.adapter.{i}", f"prompt_kernel.{i}") for i in (0, 2)]
    (weight_name, weight), (bias_name, bias) = parts[0].items()
    if weight.dim() != 2 or weight.size(1) <= dim + column:
        raise CheckpointError(
            f"prompt_kernel.0.weight must have more than {dim + column} columns, "
            f"got {shown(tuple(weight.shape))}"
        )
    added = (bias.double() + weight[:, dim + column].double()).to(bias.dtype)
    return {weight_name: weight[:, :dim].contiguous(), bias_name: added} | parts[1]


def head_weights(weights: Weights, settings: dict[str, Any], head: str) -> dict[str, Tensor]:
    """Return the weights of the CTC head or of a transducer, with the blank before the labels."""
    if head == "ctc":
        return ctc_weights(weights, settings, "head")
    names = nemo_transducer.head_weights(weights)
    found = {
        own: nemo_transducer.blank_first(own, weights.take(name)) for name, own in names.items()
    }
    if "aux_ctc" in settings:
        found |= ctc_weights(weights, settings, "head.ctc")
    return found


def ctc_weights(weights: Weights, settings: dict[str, Any], own: str) -> dict[str, Tensor]:
    """Return the weights of a CTC head under asrkit's name, with the blank before the labels."""
    name = f"{'ctc_decoder' if 'aux_ctc' in settings else 'decoder'}.decoder_layers.0"
    if f"{name}.weight" not in weights:
        raise CheckpointError(
            f"this {shown(settings.get('target'))} has no CTC head: import a CTC model, a "
            "transducer, or a hybrid of both"
        )
    check_head(settings)
    head = weights.take_part(own, name)
    head[f"{own}.weight"] = head[f"{own}.weight"].flatten(1)  # a convolution over one frame
    return {key: part.roll(1, 0) for key, part in head.items()}
