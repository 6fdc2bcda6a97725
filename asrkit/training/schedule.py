"""The number of epochs of a training and of those that are averaged, where they are "auto"."""

import math

from asrkit.config import Config
from asrkit.training.dataset import recorded

PASSES = 56.0  # over an hour of recordings, one at each speed; 4 hours get half as many
FEWEST_PASSES = 24.0
AVERAGED = 0.2  # share of the epochs


def resolved(config: Config, seconds: float) -> Config:
    """Return the configuration with numbers for training.epochs and training.average.

    Args:
        config: configuration, in which both may be "auto".
        seconds: length of an epoch.
    """
    epochs, average = config.training.epochs, config.training.average
    if epochs == "auto":
        epochs = epochs_for(seconds / 3600, config.augmentation.speed_factors)
    if average == "auto":
        average = max(1, round(AVERAGED * epochs))
    numbers = {"epochs": epochs, "average": average}
    return config.model_copy(update={"training": config.training.model_copy(update=numbers)})


def epochs_for(hours: float, speed_factors: list[float]) -> int:
    """Return the number of epochs for epochs of this length.

    The number of passes over the recordings falls with the square root of their hours, so that a
    small corpus gets enough steps and a large one does not take for ever.
    """
    passes = max(FEWEST_PASSES, PASSES / math.sqrt(recorded(hours, speed_factors)))
    return max(1, round(passes / len(speed_factors)))
