"""The network through torch.compile: on any device, compiled at the first step."""

import torch

from asrkit.backends.backend import Backend
from asrkit.model_file import ModelFile


def build(file: ModelFile, plain: Backend) -> Backend:
    """The eager backend, compiled."""
    return plain._replace(kind="compiled", step=torch.compile(plain.step, dynamic=True))
