"""The weights of a NeMo checkpoint, under asrkit's names.

Four differences are folded into them: the scaling of the encoder's input, BatchNorm's running
statistics, the position of the blank, which is NeMo's last label, and a language prompt.
"""

from typing import Any

from torch import Tensor

from asrkit.audio import build_frontend
from asrkit.errors import shown
from asrkit.interop.checkpoint import CheckpointError
from asrkit.interop.nemo_settings import check_head, folds_norm
from asrkit.interop.weights import Names, Weights

BATCH_NORM_EPSILON = 1e-5
TRANSDUCER = {"decoder.": "decoder", "joint.": "joint"}  # parts that --head ctc leaves out
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
    ours = weights.take_modules("encoder.subsampling", "encoder.pre_encode", names)
    if scale is not None:
        for part in ("weight", "bias"):
            ours[f"encoder.subsampling.out.{part}"] *= scale
    return ours


def layer_weights(weights: Weights, number: int, encoder: dict[str, Any]) -> dict[str, Tensor]:
    """Return a layer's weights."""
    name = f"encoder.layers.{number}"
    biased = encoder.get("use_bias", True) is not False
    epsilon = BATCH_NORM_EPSILON if folds_norm(encoder) else None
    return weights.take_conformer_layer(
        name, name, LAYER, biased=biased, epsilon=epsilon, bias_dims=2
    )


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


def head_weights(weights: Weights, settings: dict[str, Any], head: str) -> dict[str, Tensor]:
    """Return the weights of the CTC head or of a transducer, with the blank before the labels."""
    if head == "ctc":
        return ctc_weights(weights, settings, "head")
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
    head = {f"{own}.{end}": weights.take(f"{name}.{end}") for end in ("weight", "bias")}
    head[f"{own}.weight"] = head[f"{own}.weight"].flatten(1)  # a convolution over one frame
    return {key: part.roll(1, 0) for key, part in head.items()}
