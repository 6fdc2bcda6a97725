"""TensorBoard and other trackers of experiments, which get the settings and all curves."""

import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from asrkit.config import Config


class Writer(Protocol):
    """A receiver of curves, such as TensorBoard's SummaryWriter."""

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """Add a point to the curve of this tag."""

    def close(self) -> object:
        """Write what is waiting, and end the run."""


class Tracker:
    """A run of a tracker.

    Args:
        log: function of the values by tag, and the step.
    """

    def __init__(
        self, log: Callable[[dict[str, float], int], object], close: Callable[[], object]
    ) -> None:
        self.log, self.close = log, close

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.log({tag.replace("+", " plus "): value}, step)  # mlflow rejects "+" in names


def start_tensorboard(folder: Path) -> Writer:
    """Start TensorBoard's log in a folder.

    `add_scalar` and `close` raise an error of its thread, which therefore prints no traceback.
    """
    from torch.utils.tensorboard import SummaryWriter

    mute_tensorboard()
    writer: Writer = SummaryWriter(str(folder))
    return writer


@functools.cache
def mute_tensorboard() -> None:
    """Print no errors of TensorBoard's threads in this process."""
    others = threading.excepthook

    def hook(error: threading.ExceptHookArgs) -> None:
        if not type(error.thread).__module__.startswith("tensorboard."):
            others(error)

    threading.excepthook = hook


def start_tracker(kind: str, config: Config) -> Tracker:
    """Start a run of a tracker, named after the output folder; its project is asrkit.

    Variables of the environment change the place of the run: WANDB_MODE, MLFLOW_TRACKING_URI …

    Args:
        kind: wandb, mlflow or trackio.
    """
    tracker: Any = __import__(kind)
    name, values = Path(config.training.output_dir).name, config.model_dump(mode="json")
    if kind == "mlflow":
        tracker.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", "asrkit"))
        tracker.start_run(run_name=name)
        sections = ((section, key) for section in values for key in dict(values[section]))
        tracker.log_params({f"{s}.{k}": str(values[s][k])[:500] for s, k in sections})
        return Tracker(lambda found, step: tracker.log_metrics(found, step=step), tracker.end_run)
    project = os.environ.get("WANDB_PROJECT", "asrkit") if kind == "wandb" else "asrkit"
    tracker.init(project=project, name=name, config=values)
    return Tracker(lambda found, step: tracker.log(found, step=step), tracker.finish)
