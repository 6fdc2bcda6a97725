"""A manifest of recognised texts that are confident enough to be trained on."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asrkit.atomic_write import replacing
from asrkit.data.recording import Recording
from asrkit.data.splits import from_folder
from asrkit.errors import UserError, shown
from asrkit.evaluation.wer import wer
from asrkit.runtime import formats
from asrkit.runtime.words import confidence_of


class ConfidentManifest:
    """A writer of the recordings whose words have a mean confidence of at least `least`."""

    def __init__(self, path: str, least: float) -> None:
        self.path, self.least = Path(path), least
        self.rows: list[dict[str, Any]] = []
        self.references: list[tuple[str, str]] = []  # of kept recordings, with their texts
        self.count = self.empty = 0
        self.seconds = self.kept_seconds = 0.0

    def write(self, job: Recording, call: formats.Call) -> None:
        """Add a recording if its text is confident enough."""
        (found,) = call
        self.count += 1
        self.seconds += found.duration or 0.0
        self.empty += not found.words
        confidence = confidence_of(found.words)
        if not found.words or confidence < self.least:
            return
        self.rows.append(row_of(job, found, confidence, self.path.absolute().parent))
        self.kept_seconds += found.duration or 0.0
        if job.text is not None:
            self.references.append((job.text, found.text))

    def save(self) -> str:
        """Write the manifest; return a line with what was kept and left out."""
        left = self.count - len(self.rows)
        told = (
            f"{len(self.rows)} of {self.count} recordings, {self.kept_seconds:.0f} of "
            f"{self.seconds:.0f} s; {left - self.empty} have a confidence below {self.least:g}, "
            f"{self.empty} no words"
        )
        if not self.rows:
            advice = "; lower --confident" * (left > self.empty)
            raise UserError(f"{shown(self.path)} not written: {told}{advice}")
        with replacing(self.path) as temporary, temporary.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in self.rows)
        return f"{shown(self.path)}: {told}"

    def error_rate(self, normalize: Any) -> str:
        """Return the error rate of the kept recordings that have a reference; "" without any."""
        if not self.references:
            return ""
        references, texts = zip(*self.references, strict=True)
        rate = wer([*map(normalize, references)], [*texts])
        return f"; {rate.name} of the kept {rate}"


def row_of(
    job: Recording, found: formats.Recording, confidence: float, folder: Path
) -> dict[str, Any]:
    """Return the line of a manifest in `folder`."""
    row = {
        "id": job.id, "audio": from_folder(str(Path(job.audio).absolute()), folder),
        "text": found.text, "duration": found.duration, "confidence": round(confidence, 4),
    }  # fmt: skip
    return job.model_dump(exclude_defaults=True, exclude={"sample_rate", "num_channels"}) | row


def check_confident(options: argparse.Namespace) -> None:
    """Raise UserError for options that do not fit --confident."""
    if (options.confident is None) != (options.output is None):
        raise UserError("--confident P and --output FILE belong together: the manifest to write")
    if options.confident is None:
        return
    others = {
        "--nbest": options.nbest, "--output-dir": options.output_dir,
        "--channel split": options.channel == "split", "--format": options.format != "txt",
    }  # fmt: skip
    if wrong := [name for name, value in others.items() if value]:
        raise UserError(f"--confident writes a manifest, and does not take {wrong[0]}")


def apart(group: Sequence[Recording]) -> Sequence[Recording]:
    """Return the channels of a recording with ids of their own, as training needs them."""
    if len(group) == 1:
        return group
    return [job.model_copy(update={"id": f"{job.id}-{job.channel}"}) for job in group]
