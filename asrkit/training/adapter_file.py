"""The adapter file: one .safetensors that turns a model file into its fine-tuned one, and back.

It has the adapters of linear layers, both versions of other tensors that differ (the rows of
labels, the tokenizer) and both headers. Rounding loses bits of a weight to which an adapter is
added; the file keeps these bits, compressed, so that the first model comes back exactly.
"""

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from asrkit.errors import UserError, shown
from asrkit.model_file import (
    ADAPTERS_OF,
    ModelFile,
    ModelFileError,
    assembled,
    contents,
    fingerprint,
    read_tensors,
    write_tensors,
)
from asrkit.training.adapters import Adapters, sum_of

UP, DOWN, LOST = "up", "down", "lost"  # tensors of an adapter
MOST_RANK = 1024

Side = Literal["before", "after"]  # the first model, and the fine-tuned one
BEFORE: Side = "before"
AFTER: Side = "after"


class AdapterFile(NamedTuple):
    """The contents of an adapter file."""

    name: str  # path, for messages
    tensors: dict[str, Tensor]
    headers: dict[Side, Any]  # of the model files; not checked
    weights: Any  # fingerprints of their tensors, by side

    def layers(self) -> list[str]:
        """Return the names of the layers with adapters."""
        return [name.removesuffix(f".{UP}") for name in self.tensors if name.endswith(f".{UP}")]

    def whole(self, side: Side) -> dict[str, Tensor]:
        """Return the tensors that are stored whole, of the model before or after."""
        start = f"{side}."
        return {n.removeprefix(start): t for n, t in self.tensors.items() if n.startswith(start)}

    def of_layer(self, layer: str, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return up (O, r), down (r, I) and the lost bits of a layer with this weight (O, I)."""
        nothing = torch.empty(0)
        up, down, lost = (self.tensors.get(f"{layer}.{part}", nothing) for part in (UP, DOWN, LOST))
        types = {up.dtype, down.dtype, weight.dtype}
        fit = (
            up.dim() == down.dim() == 2 and len(down) == up.size(1) <= MOST_RANK
            and weight.shape == (len(up), down.size(1)) and types == {torch.float32}
        )  # fmt: skip
        if not fit:
            raise ModelFileError(f"{self.name}: its adapter does not fit {shown(layer)}")
        return up, down, lost


def save_adapters(path: Path, before: ModelFile, after: ModelFile, adapters: Adapters) -> None:
    """Write the adapters between two model files, atomically."""
    (old, old_header), (new, new_header) = contents(before), contents(after)
    weights = {BEFORE: weights_of(old), AFTER: weights_of(new)}
    tensors: dict[str, Tensor] = {}
    for layer, (up, down) in adapters.items():
        weight = f"{layer}.weight"
        lost = lost_bits(old.pop(weight), new.pop(weight), up.cpu(), down.cpu())
        tensors |= {f"{layer}.{UP}": up.cpu().contiguous(), f"{layer}.{DOWN}": down.cpu()}
        tensors[f"{layer}.{LOST}"] = lost
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new or not torch.equal(old[name], new[name]):
            sides = ((BEFORE, old), (AFTER, new))
            tensors |= {f"{side}.{name}": part[name] for side, part in sides if name in part}
    header = {ADAPTERS_OF: weights, BEFORE: old_header, AFTER: new_header}
    write_tensors(path, tensors, header)


def read_adapters(path: str | Path) -> AdapterFile:
    """Read an adapter file."""
    name = shown(Path(path))
    if not Path(path).is_file():
        raise ModelFileError(f"no adapter file {name}")
    tensors, header = read_tensors(path)
    weights, before, after = ((header or {}).get(key, 0) for key in (ADAPTERS_OF, BEFORE, AFTER))
    if not all(isinstance(each, dict) for each in (weights, before, after)):
        raise ModelFileError(
            f"{name} is not an adapter file: training.keep=adapters writes one beside the model"
        )
    return AdapterFile(name, tensors, {BEFORE: before, AFTER: after}, weights)


def changed(model: ModelFile, adapters: AdapterFile, there: Side) -> ModelFile:
    """Return the other one of the two models of an adapter file.

    Args:
        model: one of the two.
        there: the model to return, BEFORE or AFTER.
    """
    here: Side = "after" if there == "before" else "before"
    tensors, _ = contents(model)
    if weights_of(tensors) != adapters.weights.get(here):
        raise UserError(refused(model, adapters, there))
    for name in adapters.whole(here):
        tensors.pop(name, None)
    tensors |= adapters.whole(there)
    for layer in adapters.layers():
        weight = tensors.get(f"{layer}.weight", torch.empty(0))
        up, down, lost = adapters.of_layer(layer, weight)
        tensors[f"{layer}.weight"] = (
            sum_of(weight, up, down) if there == AFTER
            else restored(weight, up, down, lost, adapters.name)
        )  # fmt: skip
    if weights_of(tensors) != adapters.weights.get(there):
        raise ModelFileError(f"{adapters.name} does not lead to the weights that it names")
    return assembled(adapters.name, tensors, adapters.headers[there])


def refused(model: ModelFile, adapters: AdapterFile, there: Side) -> str:
    """Return the message for a model that an adapter file does not begin with."""
    name, weights = shown(model.path), weights_of(contents(model)[0])
    if weights == adapters.weights.get(there):
        state = "has these adapters already" if there == AFTER else "does not have these adapters"
        return f"{name} {state}: {adapters.name}"
    wanted = (
        "the model that they were trained on" if there == AFTER
        else "that model with these adapters, unchanged"
    )  # fmt: skip
    return f"{adapters.name} needs {wanted}; {name} has other weights"


def weights_of(tensors: Mapping[str, Tensor]) -> str:
    """Return the fingerprint of a model file's tensors."""
    return fingerprint(dict(sorted(tensors.items())))


def lost_bits(before: Tensor, after: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """Return the differences between a weight and its estimate from the changed one, compressed.

    Differences are those of the numbers' bits as integers: mostly 0, else small. Sorted by the
    place of their bytes, the zeros are neighbours.
    """
    estimate = sum_of(after, up, down, sign=-1)
    steps = before.view(torch.int32) - estimate.view(torch.int32)
    steps = (steps << 1) ^ (steps >> 31)  # the sign becomes the last bit: few bits for small ones
    planes = steps.contiguous().view(torch.uint8).reshape(-1, 4).T.contiguous()
    packed = zlib.compress(planes.numpy().tobytes(), 9)
    return torch.frombuffer(bytearray(packed), dtype=torch.uint8)


def restored(after: Tensor, up: Tensor, down: Tensor, lost: Tensor, name: str) -> Tensor:
    """Return the weight before an adapter was added, exactly; `lost` is `lost_bits`' result.

    (O, I), (O, r), (r, I), the lost bits -> (O, I)
    """
    size, reader = 4 * after.numel(), zlib.decompressobj()
    try:
        data = reader.decompress(lost.numpy().tobytes(), size + 1)  # 0 would be no limit
    except (zlib.error, TypeError) as error:
        raise ModelFileError(f"{name} is damaged: {error}") from None
    if len(data) != size:
        raise ModelFileError(f"{name} is damaged: {len(data)} bytes of a weight, expected {size}")
    planes = torch.frombuffer(bytearray(data), dtype=torch.uint8).reshape(4, -1)
    steps = planes.T.contiguous().view(torch.int32).reshape(after.shape)
    steps = ((steps >> 1) & 0x7FFFFFFF) ^ -(steps & 1)
    return (sum_of(after, up, down, sign=-1).view(torch.int32) + steps).view(torch.float32)
