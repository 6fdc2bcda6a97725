"""Weights of a checkpoint, under asrkit's names."""

from collections import Counter
from collections.abc import Mapping

import torch
from torch import Tensor

from asrkit.errors import shown
from asrkit.interop.checkpoint import CheckpointError

NORM_EPSILON = 1e-5  # of LayerNorm and BatchNorm
Names = Mapping[str, str | tuple[str, ...]]  # modules: asrkit's names -> the checkpoint's


class Weights(dict[str, Tensor]):
    """A checkpoint's weights by name; each is used once."""

    def take(self, name: str) -> Tensor:
        """Remove and return a weight. Raises CheckpointError if it is missing."""
        if name not in self:
            raise CheckpointError(f"the weight {shown(name)} is missing")
        tensor = self.pop(name)
        if not tensor.is_floating_point():
            raise CheckpointError(
                f"the weight {shown(name)} must be floating point, got {tensor.dtype}"
            )
        return tensor

    def take_modules(
        self, own: str, name: str, names: Names, biased: bool = True
    ) -> dict[str, Tensor]:
        """Remove the weights and biases of modules, and return them by asrkit's names.

        Args:
            own: asrkit's name of the part that has the modules.
            name: name of that part in the checkpoint.
            names: modules of the part; the weights of several names are joined.
            biased: whether modules other than norms must have a bias; else a missing one is zeros.
        """
        found = {}
        for module, parts in names.items():
            parts = (parts,) if isinstance(parts, str) else parts
            for part in () if biased or "norm" in module else parts:
                if (weight := self.get(f"{name}.{part}.weight")) is not None:
                    self.setdefault(f"{name}.{part}.bias", torch.zeros(weight.shape[:1]))
            for end in ("weight", "bias"):
                first, *others = (self.take(f"{name}.{part}.{end}") for part in parts)
                found[f"{own}.{module}.{end}"] = torch.cat([first, *others]) if others else first
        return found

    def take_conformer_layer(
        self, name: str, source: str, names: Names, *,
        folds_norm: bool, bias_dims: int, biased: bool = True,
    ) -> dict[str, Tensor]:  # fmt: skip
        """Remove the weights of a layer, and return them by asrkit's names.

        Args:
            name: asrkit's name of the layer.
            source: name of the layer in the checkpoint.
            folds_norm: fold the running statistics of the convolution's BatchNorm into its scale
                and bias.
            bias_dims: dimensions of size 1 in asrkit's biases of relative positions.
            biased: whether all modules must have a bias, as for `take_modules`.
        """
        found = self.take_modules(name, source, names, biased)
        for part in ("expand", "project"):  # convolutions over one frame: linear layers in asrkit
            key = f"{name}.convolution.{part}.weight"
            found[key] = found[key].flatten(1)
        if folds_norm:
            norm = f"{source}.{names['convolution.depthwise_norm']}"
            mean, variance = (self.take(f"{norm}.running_{part}") for part in ("mean", "var"))
            self.pop(f"{norm}.num_batches_tracked", None)
            keys = [f"{name}.convolution.depthwise_norm.{end}" for end in ("weight", "bias")]
            scale, bias = (found[key] for key in keys)
            if len({part.shape for part in (mean, variance, scale, bias)}) > 1:
                raise CheckpointError(f"the parts of {norm} have different lengths")
            scale = scale.double() / (variance.double() + NORM_EPSILON).sqrt()
            bias = bias - mean.double() * scale
            found |= {key: part.float() for key, part in zip(keys, (scale, bias), strict=True)}
        position, attention = f"{name}.attention.position", f"{source}.self_attn"
        found[f"{position}.projection.weight"] = self.take(f"{attention}.linear_pos.weight")
        for key, end in (("content_bias", "u"), ("position_bias", "v")):
            bias = self.take(f"{attention}.pos_bias_{end}")
            found[f"{position}.{key}"] = bias.unflatten(0, (-1, *[1] * bias_dims))
        return found

    def left_out(self, parts: Mapping[str, str]) -> dict[str, int]:
        """Count the unused parameters by part. Raises CheckpointError for those of other parts.

        Args:
            parts: beginnings of the names of weights that are left out, and names of the parts.
        """
        counts: Counter[str] = Counter()
        counted = set()
        for name, tensor in sorted(self.items()):
            part = next((part for start, part in parts.items() if name.startswith(start)), None)
            if part is None:
                raise CheckpointError(f"the weight {shown(name)} is unknown and cannot be imported")
            if tensor.data_ptr() not in counted:  # some have two names
                counts[part] += tensor.numel()
            counted.add(tensor.data_ptr())
        return dict(counts)
