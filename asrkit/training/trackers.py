"""Trackers of experiments beside TensorBoard, which get the settings and all curves."""

import os
from pathlib import Path
from typing import Any

from asrkit.config.schema import Config


class Tracker:
    """A run of wandb or mlflow, named after the output folder; its project is asrkit.

    Variables of the environment change the place of the run: WANDB_MODE, MLFLOW_TRACKING_URI …
    """

    def __init__(self, kind: str, config: Config) -> None:
        package: Any = __import__(kind)
        name, values = Path(config.training.output_dir).name, config.model_dump(mode="json")
        if kind == "mlflow":
            package.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", "asrkit"))
            package.start_run(run_name=name)
            keys = ((section, key) for section in values for key in dict(values[section]))
            package.log_params({f"{s}.{k}": str(values[s][k])[:500] for s, k in keys})
            self.log, self.close = package.log_metrics, package.end_run
        else:
            project = os.environ.get("WANDB_PROJECT", "asrkit")
            package.init(project=project, name=name, config=values)
            self.log, self.close = package.log, package.finish

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.log({tag.replace("+", " plus "): value}, step=step)  # mlflow rejects "+" in names
