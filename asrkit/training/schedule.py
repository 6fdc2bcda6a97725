"""Values for training.epochs and training.average if they are "auto"."""

import math

from asrkit.config.schema import Config

PASSES = 56.0  # passes over one hour of recordings, one per speed; 28 passes over 4 hours
FEWEST_PASSES = 24.0
AVERAGED = 0.2  # share of the epochs


def resolved(config: Config, seconds: float) -> Config:
    """Return the configuration with numbers for training.epochs and training.average.

    The number of passes falls with the square root of the hours of recordings: a small corpus gets
    enough steps, and the time for a large corpus stays limited.

    Args:
        config: configuration, in which both may be "auto".
        seconds: seconds of audio in an epoch.
    """
    epochs, average = config.training.epochs, config.training.average
    if epochs == "auto":
        factors = config.augmentation.speed_factors  # an epoch has each recording at each of them
        hours = seconds / 3600 / sum(1.0 / factor for factor in factors)
        passes = max(FEWEST_PASSES, PASSES / math.sqrt(hours))
        epochs = max(1, round(passes / len(factors)))
    if average == "auto":
        average = max(1, round(AVERAGED * int(epochs)))
    numbers = {"epochs": epochs, "average": average}
    return config.model_copy(update={"training": config.training.model_copy(update=numbers)})
