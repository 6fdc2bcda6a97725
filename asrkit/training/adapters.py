"""Parts of a network that learn in fine-tuning: all but the frozen ones, or adapters alone.

An adapter is a product of two small matrices that is added to the weight of a linear layer (LoRA,
Hu et al. 2021). It is merged into the weight when the training ends.
"""

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from asrkit.config.schema import Config
from asrkit.errors import UserError
from asrkit.model import Network
from asrkit.model.attention import ChunkAttention
from asrkit.model.layer import FeedForward
from asrkit.model_file import load_model
from asrkit.training.optimizer import parameters_of

LAYERS = {ChunkAttention: ("qkv", "out"), FeedForward: ("expand", "project")}


class AdaptedLinear(nn.Module):
    """A frozen linear layer with an adapter, which changes nothing at first: (…, I) -> (…, O).

    Args:
        linear: layer, whose parameters are shared and frozen.
        rank: r, the rows of `down` and the columns of `up`.
    """

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        outputs, inputs = linear.weight.shape
        self.down = nn.Parameter(linear.weight.new_empty(rank, inputs).normal_(std=inputs**-0.5))
        self.up = nn.Parameter(linear.weight.new_zeros(outputs, rank))

    def forward(self, x: Tensor) -> Tensor:
        change = functional.linear(functional.linear(x, self.down), self.up)
        return functional.linear(x, self.weight, self.bias) + change


def restrict(model: Network, config: Config) -> None:
    """Freeze the parts of a new model that `training.freeze` and `training.keep` do not train.

    With adapters, only these learn, and the rows of labels that the first model lacks.
    """
    options = config.training
    for part in options.freeze:
        for parameter in parameters_of(model, part, "training.freeze"):
            parameter.requires_grad_(False)
    if options.keep == "adapters":
        assert options.start_from is not None  # the configuration is checked
        known = load_model(options.start_from).tokenizer.vocab_size
        add_adapters(model, options.adapter_rank, known)
    if not any(each.requires_grad for each in model.parameters()):
        raise UserError(f"training.freeze {list(options.freeze)} freezes everything: name fewer")


def add_adapters(model: Network, rank: int, known: int) -> None:
    """Freeze a model except for new adapters, and the head's weights of labels from `known` on."""
    model.requires_grad_(False)
    for parent, name in adapted(model):
        setattr(parent, name, AdaptedLinear(getattr(parent, name), rank))
    if model.head.vocab_size == known:
        return
    for parameter, mask in zip(model.head.parameters(), new_label_masks(model, known), strict=True):
        if mask.any():
            parameter.requires_grad_(True)
            parameter.register_hook(lambda gradient, mask=mask: gradient * mask.to(gradient))


def adapted(model: Network) -> Iterator[tuple[nn.Module, str]]:
    """Yield the parents and names of the layers that can have adapters."""
    for module in list(model.encoder.layers.modules()):
        for name in next((names for kind, names in LAYERS.items() if isinstance(module, kind)), ()):
            yield module, name


def new_label_masks(model: Network, known: int) -> Sequence[Tensor]:
    """Return for each parameter of the head 1 for weights of labels from `known` on, else 0."""
    ones, zeros = copy.deepcopy(model.head), copy.deepcopy(model.head)
    with torch.no_grad():
        for one, zero in zip(ones.parameters(), zeros.parameters(), strict=True):
            one.fill_(1.0)
            zero.fill_(0.0)
        ones.copy_labels(zeros, [*range(known)], [*range(known)])
    return [each.detach() for each in ones.parameters()]


def merge(model: Network) -> None:
    """Merge the adapters into their layers, in place; the sum is computed in float64."""
    for parent, name in adapted(model):
        layer = getattr(parent, name)
        if isinstance(layer, AdaptedLinear):
            parts = (each.detach().double() for each in (layer.weight, layer.up, layer.down))
            outputs, inputs = layer.weight.shape
            linear = nn.Linear(inputs, outputs, bias=layer.bias is not None, device="meta")
            linear.weight = nn.Parameter(torch.addmm(*parts).to(layer.weight.dtype))
            linear.bias = layer.bias
            setattr(parent, name, linear)
