"""Weights of a checkpoint, under asrkit's names."""

from collections import Counter
from collections.abc import Mapping

import torch
from torch import Tensor

from asrkit.errors import shown
from asrkit.interop.checkpoint import CheckpointError

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
        self, own: str, name: str, names: Names, *, biased: bool = True,
        epsilon: float | None, bias_dims: int | None,
    ) -> dict[str, Tensor]:  # fmt: skip
        """Remove the weights of a layer, and return them by asrkit's names.

        Args:
            biased: whether all modules must have a bias, as for `take_modules`.
            epsilon: that of the convolution's BatchNorm, whose running statistics are folded into
                its scale and bias; None for a LayerNorm.
            bias_dims: dimensions of size 1 in asrkit's biases of relative positions; None for a
                layer without them.
        """
        found = self.take_modules(own, name, names, biased)
        for part in ("expand", "project"):  # convolutions over one frame: linear layers in asrkit
            key = f"{own}.convolution.{part}.weight"
            found[key] = found[key].flatten(1)
        if epsilon is not None:
            norm, source = (
                "convolution.depthwise_norm",
                f"{name}.{names['convolution.depthwise_norm']}",
            )
            mean, variance = (self.take(f"{source}.running_{part}") for part in ("mean", "var"))
            self.pop(f"{source}.num_batches_tracked", None)
            scale, bias = (found[f"{own}.{norm}.{end}"] for end in ("weight", "bias"))
            if len({part.shape for part in (mean, variance, scale, bias)}) > 1:
                raise CheckpointError(f"the parts of {source} have different lengths")
            scale = scale.double() / (variance.double() + epsilon).sqrt()
            found[f"{own}.{norm}.weight"] = scale.float()
            found[f"{own}.{norm}.bias"] = (bias - mean.double() * scale).float()
        if bias_dims is not None:
            position, source = f"{own}.attention.position", f"{name}.self_attn"
            found[f"{position}.projection.weight"] = self.take(f"{source}.linear_pos.weight")
            for key, end in (("content_bias", "u"), ("position_bias", "v")):
                bias = self.take(f"{source}.pos_bias_{end}")
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
