"""Models whose parameters, gradients and optimiser states are spread over the ranks of a run.

FSDP (Zhao et al. 2023, torch's fully_shard): each rank keeps an equal share of the rows of every
parameter. A layer's are gathered before it runs, forward and backward, and let go after it.
"""

from collections.abc import Iterator

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from asrkit.build import build_model
from asrkit.config import Config
from asrkit.model import Network
from asrkit.model.layer import ConformerLayer
from asrkit.training.loss import Loss


def shard(loss: Loss, mesh: DeviceMesh) -> Loss:
    """Spread a loss's model over the ranks, in place, and move each rank's rows to its device.

    To be called before the optimisers are built: the parameters are others then.
    """
    for layer in loss.model.encoder.layers:
        fully_shard(list(parts(layer)), mesh=mesh)
    fully_shard(loss, mesh=mesh)
    return loss


def parts(layer: nn.Module) -> Iterator[nn.Module]:
    """A layer's modules but its position encoding.

    Its tables are computed before the layers run, so its parameters are gathered with those outside
    the layers, for the whole pass.
    """
    assert isinstance(layer, ConformerLayer)
    for module in layer.children():
        if module is layer.attention:
            yield from (layer.attention.qkv, layer.attention.out)
        else:
            yield module


def whole(tensor: Tensor) -> Tensor:
    """All rows of a tensor.

    Of one that is spread, every rank has to call this, for the same tensors in the same order.
    """
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def own(tensor: Tensor) -> Tensor:
    """The rows of a tensor that are on this rank: all, if it is not spread."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def like(tensor: Tensor, other: Tensor) -> Tensor:
    """A whole tensor spread as `other` is: on this rank its rows of it. Nothing is sent."""
    if isinstance(tensor, DTensor) or not isinstance(other, DTensor):
        return tensor
    tensor = tensor.to(other.device)
    return distribute_tensor(tensor, other.device_mesh, other.placements, src_data_rank=None)


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """A model's state; what is spread is gathered in CPU memory. All ranks have to call this."""
    return {
        name: whole(tensor).cpu() if isinstance(tensor, DTensor) else tensor
        for name, tensor in model.state_dict().items()
    }


def whole_model(model: Network, config: Config) -> Network:
    """The model itself if it is whole, else a copy that is, on this rank's device.

    Of one that is spread, all ranks have to call this.
    """
    weight = next(iter(model.head.parameters()))
    if not isinstance(weight, DTensor):
        return model
    copy = build_model(config.model, model.head.vocab_size)
    copy.load_state_dict(whole_weights(model))
    return copy.to(weight.device)


def load_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Load weights, whole or spread, into a model that is whole or spread."""
    model.load_state_dict({name: like(weights[name], t) for name, t in model.state_dict().items()})
