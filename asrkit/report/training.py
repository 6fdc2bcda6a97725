"""A training and its most important numbers."""

from pathlib import Path
from typing import Any

from asrkit.evaluation import Score
from asrkit.model_file import ModelFile
from asrkit.training.progress import duration


def tiles(scores: dict[str, Score], chunk: str, file: ModelFile) -> list[tuple[str, str]]:
    """Return the most important numbers, with their names."""
    shown = [(scores[name].words.percent, f"{scores[name].words.name}, {context_phrase(name)}")
             for name in dict.fromkeys(["full", chunk]) if name in scores]  # fmt: skip
    for name, rate in [*scores[chunk].rates.items()][1:]:
        shown.append((rate.percent, f"{name}, {context_phrase(chunk)}"))
    delay = scores[chunk].delay
    if delay is not None:
        shown.append((f"{delay.median:.0f} ms", f"median delay, {context_phrase(chunk)}"))
    shown.append((f"{file.num_parameters / 1e6:.2f} M", "parameters"))
    seconds = file.training.get("wall_seconds")
    return shown if seconds is None else [*shown, (duration(seconds), "of training")]


def context_phrase(name: str) -> str:
    return "full context" if name == "full" else f"{name} chunks"


def facts(file: ModelFile) -> dict[str, Any]:
    """Return facts from the model file by name: model, duration of the training, command."""
    training, folder = file.training, Path(file.path or "").parent
    config, curves = folder / "config.yaml", folder / "tensorboard"
    again = f"asrkit train --config {config}" if config.is_file() else None
    hours = training.get("audio_hours_per_epoch")
    known = {
        "model": file.path,
        "command": training.get("command", again),
        "curves": f"tensorboard --logdir {curves}" if curves.is_dir() else None,
        "vocabulary": f"{file.tokenizer.vocab_size} with the blank, {file.config.text.tokenizer}",
        "epochs": training.get("epochs"),
        "average of epochs": ", ".join(map(str, training.get("averaged_epochs", []))) or None,
        "steps": training.get("steps"),
        "audio in an epoch": hours and f"{hours:.2f} h",
        "training time": training.get("wall_seconds") and duration(training["wall_seconds"]),
    }
    return {name: value for name, value in known.items() if value is not None}
