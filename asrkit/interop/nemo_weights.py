"""The weights of a NeMo checkpoint, under asrkit's names.

Four differences are folded into them: the scaling of the encoder's input, BatchNorm's running
statistics, the position of the blank, which is NeMo's last label, and a language prompt.
"""

import torch
from torch import Tensor

from asrkit.audio import build_frontend
from asrkit.errors import shown
from asrkit.interop.checkpoint import CheckpointError
from asrkit.interop.nemo_settings import Encoder
from asrkit.interop.weights import Names, Weights

SUBSAMPLING = {
    "conv1": "conv.0", "conv2.0": "conv.2", "conv2.1": "conv.3", "conv3.0": "conv.5",
    "conv3.1": "conv.6", "out": "out",
}  # fmt: skip
PROJECTIONS = {"enc": "from_encoder", "pred": "from_predictor"}  # of joiners
LAYER: Names = {
    "ffn1.norm": "norm_feed_forward1",
    "ffn1.expand": "feed_forward1.linear1",
    "ffn1.project": "feed_forward1.linear2",
    "attention_norm": "norm_self_att",
    "attention.qkv": ("self_attn.linear_q", "self_attn.linear_k", "self_attn.linear_v"),
    "attention.out": "self_attn.linear_out",
    "convolution.norm": "norm_conv",
    "convolution.expand": "conv.pointwise_conv1",
    "convolution.depthwise": "conv.depthwise_conv",
    "convolution.depthwise_norm": "conv.batch_norm",
    "convolution.project": "conv.pointwise_conv2",
    "ffn2.norm": "norm_feed_forward2",
    "ffn2.expand": "feed_forward2.linear1",
    "ffn2.project": "feed_forward2.linear2",
    "norm": "norm_out",
}


def check_filters(weights: Weights, num_mels: int) -> None:
    """Raise CheckpointError if the checkpoint's window or filters differ from asrkit's."""
    frontend = build_frontend("slaney", num_mels)
    constants = {"fb": frontend.filters.T[None], "window": frontend.window}
    for name, expected in ((name, torch.from_numpy(each)) for name, each in constants.items()):
        found = weights.pop(f"preprocessor.featurizer.{name}", expected)
        if found.shape != expected.shape or not (found - expected).abs().max() < 1e-6:
            raise CheckpointError(
                f"preprocessor.featurizer.{name} does not match the settings of the preprocessor"
            )


def encoder_weights(weights: Weights, encoder: Encoder, num_mels: int) -> dict[str, Tensor]:
    """Return the encoder's weights, with its normalisation, which NeMo lacks."""
    check_filters(weights, num_mels)
    found = weights.take_modules("encoder.subsampling", "encoder.pre_encode", SUBSAMPLING)
    if encoder.xscaling:
        for end in ("weight", "bias"):
            found[f"encoder.subsampling.out.{end}"] *= encoder.d_model**0.5
    folds_norm = encoder.conv_norm_type == "batch_norm"
    for name in (f"encoder.layers.{number}" for number in range(encoder.n_layers)):
        found |= weights.take_conformer_layer(
            name, name, LAYER, folds_norm=folds_norm, bias_dims=2, biased=encoder.use_bias
        )
    return found | {"encoder.mean": torch.zeros(num_mels), "encoder.scale": torch.ones(num_mels)}


def adapter_weights(weights: Weights, dim: int, column: int) -> dict[str, Tensor]:
    """Return the layers between encoder and head, with a language prompt folded in.

    NeMo appends the one-hot vector of the language to every encoder frame, before two linear layers
    with a ReLU between them. So the language's column of the first layer is added to its bias.
    """
    found = weights.take_modules("head.adapter", "prompt_kernel", {"0": "0", "2": "2"})
    weight, bias = (found[f"head.adapter.0.{end}"] for end in ("weight", "bias"))
    if weight.dim() != 2 or weight.size(1) <= dim + column:
        raise CheckpointError(
            f"prompt_kernel.0.weight must have more than {dim + column} columns, "
            f"got {shown(tuple(weight.shape))}"
        )
    added = (bias.double() + weight[:, dim + column].double()).to(bias.dtype)
    first = {"weight": weight[:, :dim].contiguous(), "bias": added}
    return found | {f"head.adapter.0.{end}": tensor for end, tensor in first.items()}


def transducer_weights(weights: Weights) -> dict[str, Tensor]:
    """Return the weights of predictor and joiner, with the blank before the labels."""
    found = {}
    for name in [*weights]:
        part, _, rest = name.partition(".")
        if part == "decoder":
            key = f"predictor.{rest.removeprefix('prediction.').removeprefix('dec_rnn.')}"
        elif name.startswith("joint.joint_net."):  # activation, perhaps a dropout, linear
            key = f"out.{rest.rpartition('.')[2]}"
        elif part == "joint":
            place, _, end = rest.partition(".")
            key = f"{PROJECTIONS.get(place, place)}.{end}"
        else:
            continue
        has_labels = "embed" in key or key.startswith("out.")
        found[f"head.{key}"] = weights.take(name).roll(1, 0) if has_labels else weights.take(name)
    return found


def ctc_weights(weights: Weights, name: str, head: str) -> dict[str, Tensor]:
    """Return the weights of the CTC layer `name`, with the blank before the labels."""
    found = {f"{head}.{end}": weights.take(f"{name}.{end}") for end in ("weight", "bias")}
    found[f"{head}.weight"] = found[f"{head}.weight"].flatten(1)  # a convolution over one frame
    return {key: part.roll(1, 0) for key, part in found.items()}
