"""A frontend in PyTorch, for training and exports."""

from typing import Any

import torch
from torch import Tensor, nn


class TorchFrontend(nn.Module):
    """A frontend whose constants are buffers: they follow the module's device and type.

    Args:
        frontend: frontend on arrays of NumPy, an `audio.Frontend`.
    """

    def __init__(self, frontend: Any) -> None:
        super().__init__()
        self.kind = frontend
        for name in frontend.CONSTANTS:
            constant = torch.from_numpy(getattr(frontend, name))
            self.register_buffer(name, constant, persistent=False)

    def of_tensors(self) -> Any:
        """Return the frontend on tensors."""
        names = iter(self.kind.CONSTANTS)
        return self.kind.converted(lambda _: getattr(self, next(names)))

    def forward(self, samples: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """Return the frames that end in these samples, and the new past, see `Frontend`."""
        return self.of_tensors()(samples, past)

    def frames(self, samples: Tensor) -> Tensor:
        """Return the features of all whole frames of samples: (B, N) -> (B, T, F)."""
        return self.of_tensors().frames(samples)
