"""The language prompt of a NeMo transducer or hybrid: one language, folded into the weights.

NeMo appends the one-hot vector of the language to every encoder frame, before two linear layers
with a ReLU between them. The language's column of the first layer is therefore added to its bias.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from asrkit.errors import shown, whole_number
from asrkit.interop.checkpoint import CheckpointError
from asrkit.interop.nemo_settings import PROMPTED, class_of, section


def column(settings: Mapping[str, Any], prompt: str | None) -> int | None:
    """Return the number of a language among the prompts; None for a model without prompts.

    Args:
        prompt: name of the language in the model's dictionary.
    """
    if class_of(settings) not in PROMPTED:
        if prompt is None:
            return None
        raise CheckpointError(
            f"only models with a language prompt take --prompt, got {shown(prompt)}: leave it out"
        )
    defaults = section(settings, "model_defaults")
    known = defaults.get("prompt_dictionary")
    known = known if isinstance(known, dict) else {}
    if prompt not in known:
        raise CheckpointError(
            f"the model reads a language prompt, got {shown(prompt)}: choose one with --prompt, "
            f"from {', '.join(map(shown, known))}"
        )
    count = whole_number(defaults.get("num_prompts"), 1)
    if count is None or settings.get("num_prompts", count) != count:
        raise CheckpointError(
            "num_prompts must be one whole number for the model and model_defaults, "
            f"got {shown(settings.get('num_prompts'))} and {shown(defaults.get('num_prompts'))}"
        )
    found = whole_number(known[prompt], 0)
    if found is None or found >= count:
        raise CheckpointError(
            f"model_defaults.prompt_dictionary must have whole numbers below {count}, "
            f"got {shown(known[prompt])}"
        )
    return found


def folded(first: Tensor, bias: Tensor, dim: int, column: int) -> tuple[Tensor, Tensor]:
    """Fold a prompt into the first linear layer.

    Args:
        first: weight (N, D + prompts).
        bias: bias (N,).
        column: number of the prompt.
    """
    if first.dim() != 2 or first.size(1) <= dim + column:
        raise CheckpointError(
            f"prompt_kernel.0.weight must have more than {dim + column} columns, "
            f"got {shown(tuple(first.shape))}"
        )
    added = bias.double() + first[:, dim + column].double()
    return first[:, :dim].contiguous(), added.to(bias.dtype)
