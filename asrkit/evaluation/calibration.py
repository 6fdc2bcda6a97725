"""How far confidences are from the share of what is right."""

from collections.abc import Sequence

import numpy as np


def calibration_error(confidences: Sequence[float], right: Sequence[bool], bins: int = 10) -> float:
    """Expected calibration error (Guo et al. 2017, On Calibration of Modern Neural Networks).

    The distance between the mean confidence and the share that is right, in bins of equal width,
    weighted by how many are in each. 0 is perfect; so is nothing.

    Args:
        confidences: 0 to 1.
        right: whether each is.
        bins: how many; the paper's figures use 15.
    """
    if not len(confidences):
        return 0.0
    sure, correct = np.asarray(confidences, dtype=float), np.asarray(right, dtype=float)
    places = np.minimum((sure * bins).astype(int), bins - 1)
    gaps = np.bincount(places, sure - correct, minlength=bins)
    return float(np.abs(gaps).sum() / len(sure))
