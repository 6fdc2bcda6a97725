"""WeNet's encoder in full context, from its weights by its names: plain, without a past."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Weights = Mapping[str, Tensor]
EMBED = {
    "conv2d": ("embed.out.0", [2, 2]),
    "conv2d6": ("embed.linear", [2, 3]),
    "conv2d8": ("embed.linear", [2, 2, 2]),
}


def linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    weight = weights[f"{name}.weight"]
    return functional.linear(x, weight.flatten(1), weights.get(f"{name}.bias"))


def norm(weights: Weights, name: str, x: Tensor) -> Tensor:
    return functional.layer_norm(
        x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"]
    )


def sinusoids(frames: int, dim: int) -> Tensor:
    angles = torch.arange(frames)[:, None] * torch.exp(
        torch.arange(0, dim, 2) * -(math.log(10000.0) / dim)
    )
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)


def attention(weights: Weights, name: str, x: Tensor, heads: int, relative: bool) -> Tensor:
    def of_heads(vectors: Tensor) -> Tensor:
        return vectors.unflatten(1, (heads, -1)).transpose(0, 1)  # (H, T, Dh)

    q, k, v = (of_heads(linear(weights, f"{name}.linear_{each}", x)) for each in "qkv")
    if relative:
        p = of_heads(linear(weights, f"{name}.linear_pos", sinusoids(*x.shape)))
        u, w = (weights[f"{name}.pos_bias_{each}"].unsqueeze(1) for each in "uv")
        scores = (q + u) @ k.transpose(1, 2) + (q + w) @ p.transpose(1, 2)
    else:
        scores = q @ k.transpose(1, 2)
    context = (scores / math.sqrt(q.size(2))).softmax(dim=2) @ v
    return linear(weights, f"{name}.linear_out", context.transpose(0, 1).flatten(1))


def convolution(weights: Weights, name: str, x: Tensor) -> Tensor:
    kernel = weights[f"{name}.depthwise_conv.weight"]
    x = functional.pad(x, (0, 0, kernel.size(2) - 1, 0))
    x = functional.glu(linear(weights, f"{name}.pointwise_conv1", x), dim=1)
    x = functional.conv1d(x.t(), kernel, weights[f"{name}.depthwise_conv.bias"], groups=len(kernel))
    if f"{name}.norm.running_mean" in weights:
        of_norm = (weights[f"{name}.norm.{each}"] for each in ("running_mean", "running_var"))
        scale = (weights[f"{name}.norm.{each}"] for each in ("weight", "bias"))
        x = functional.batch_norm(x[None], *of_norm, *scale)[0].t()
    else:
        x = norm(weights, f"{name}.norm", x.t())
    return linear(weights, f"{name}.pointwise_conv2", functional.silu(x))


def feed_forward(weights: Weights, name: str, x: Tensor) -> Tensor:
    return linear(weights, f"{name}.w_2", functional.silu(linear(weights, f"{name}.w_1", x)))


def encode(weights: Weights, settings: Mapping[str, Any], feats: Tensor) -> Tensor:
    """(T, F) -> (E, D), with `settings` as in encoder_conf."""
    weights = {name.removeprefix("encoder."): tensor for name, tensor in weights.items()}
    kind, dim = settings["pos_enc_layer_type"], settings["output_size"]
    x = ((feats - weights["global_cmvn.mean"]) * weights["global_cmvn.istd"])[None]
    out, strides = EMBED[settings["input_layer"]]
    for i, stride in enumerate(strides):
        conv = (weights[f"embed.conv.{2 * i}.{end}"] for end in ("weight", "bias"))
        x = functional.conv2d(x, *conv, stride=stride).relu()
    x = linear(weights, out, x.transpose(0, 1).flatten(1))
    if kind != "no_pos":
        x = x * math.sqrt(dim)
    if kind == "abs_pos":
        x = x + sinusoids(*x.shape)
    for i in range(settings["num_blocks"]):
        at = f"encoders.{i}"
        half = norm(weights, f"{at}.norm_ff_macaron", x)
        x = x + 0.5 * feed_forward(weights, f"{at}.feed_forward_macaron", half)
        inputs = norm(weights, f"{at}.norm_mha", x)
        heads = settings["attention_heads"]
        x = x + attention(weights, f"{at}.self_attn", inputs, heads, kind == "rel_pos")
        x = x + convolution(weights, f"{at}.conv_module", norm(weights, f"{at}.norm_conv", x))
        half = norm(weights, f"{at}.norm_ff", x)
        x = x + 0.5 * feed_forward(weights, f"{at}.feed_forward", half)
        x = norm(weights, f"{at}.norm_final", x)
    return norm(weights, "after_norm", x) if settings.get("final_norm", True) else x
