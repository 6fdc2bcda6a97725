"""The functions of the array API for an array: NumPy's, or PyTorch's under the same names."""

from typing import Any

import numpy as np


def array_namespace(array: Any) -> Any:
    """Return the module with the array API's functions for an array of NumPy or PyTorch."""
    if isinstance(array, np.ndarray):
        return np
    from array_api_compat import torch  # only where torch is: its import takes longer than NumPy's

    return torch
