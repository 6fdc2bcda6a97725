"""Sharded models: parameters, gradients and optimiser states are split over the ranks of a run.

FSDP (Zhao et al. 2023, torch's fully_shard): each rank keeps an equal share of the rows of every
parameter. A layer's parameters are gathered before its forward and backward pass, and freed after.
"""

from collections.abc import Iterator

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from asrkit.build import build_model
from asrkit.config import Config
from asrkit.model import Network
from asrkit.model.layer import ConformerLayer, TransformerLayer
from asrkit.training.loss import Loss


def shard(loss: Loss, mesh: DeviceMesh) -> Loss:
    """Shard a loss's model over the ranks, in place, and move each rank's rows to its device.

    Call this before building the optimisers, because it replaces the parameters.
    """
    for layer in loss.model.encoder.layers:
        fully_shard(list(parts(layer)), mesh=mesh)
    fully_shard(loss, mesh=mesh)
    return loss


def parts(layer: nn.Module) -> Iterator[nn.Module]:
    """Yield a layer's modules, without its position encoding.

    The tables of the encoding are computed before the layers run. Its parameters are therefore
    gathered with those outside the layers, for the whole pass.
    """
    assert isinstance(layer, ConformerLayer | TransformerLayer)
    for module in layer.children():
        if module is layer.attention:
            yield from (layer.attention.qkv, layer.attention.out)
        else:
            yield module


def whole(tensor: Tensor) -> Tensor:
    """Return all rows of a tensor.

    For a sharded tensor every rank must call this, for the same tensors in the same order.
    """
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def own(tensor: Tensor) -> Tensor:
    """Return the rows of a tensor on this rank: all rows, if the tensor is not sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def like(tensor: Tensor, other: Tensor) -> Tensor:
    """Shard a whole tensor like `other`: each rank keeps its rows, and nothing is sent."""
    if isinstance(tensor, DTensor) or not isinstance(other, DTensor):
        return tensor
    tensor = tensor.to(other.device)
    return distribute_tensor(tensor, other.device_mesh, other.placements, src_data_rank=None)


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's state; sharded tensors are gathered on the CPU. All ranks must call this."""
    return {
        name: whole(tensor).cpu() if isinstance(tensor, DTensor) else tensor
        for name, tensor in model.state_dict().items()
    }


def whole_model(model: Network, config: Config) -> Network:
    """Return the model if it is whole; for a sharded model, a whole copy on this rank's device.

    For a sharded model all ranks must call this.
    """
    weight = next(iter(model.head.parameters()))
    if not isinstance(weight, DTensor):
        return model
    copy = build_model(config.model, model.head.vocab_size)
    copy.load_state_dict(whole_weights(model))
    return copy.to(weight.device)


def load_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Load weights into a model; both may be whole or sharded."""
    model.load_state_dict({name: like(weights[name], t) for name, t in model.state_dict().items()})
