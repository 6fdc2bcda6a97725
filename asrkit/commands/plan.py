"""Write a training configuration that fits a corpus: asrkit plan TRAIN DEV"""

import argparse
import math
from collections.abc import Iterable
from pathlib import Path

import torch
import yaml
from tqdm import tqdm

from asrkit.atomic_write import replacing
from asrkit.build import build_model
from asrkit.commands.data import refuse_twice
from asrkit.data.checks.facts import Facts
from asrkit.data.checks.measure import inspect_all, valid_entries
from asrkit.data.checks.report import by_manifest, columns
from asrkit.data.manifest import ManifestError
from asrkit.errors import printable
from asrkit.model_file import load_model
from asrkit.pretrained import ready_models
from asrkit.training.planning import ROWS, Texts, planned
from asrkit.training.progress import duration
from asrkit.training.schedule import resolved
from asrkit.training.warm_start import heard_speakers, load_training


def plan(options: argparse.Namespace) -> int:
    paths = options.train, options.dev
    refuse_twice(paths)
    entries = [valid_entries(path) for path in paths]
    train, dev = (
        usable(tqdm(inspect_all(part, decode=False), path, len(part), False, disable=None), path)
        for part, path in zip(entries, paths, strict=True)
    )
    seconds = sum(each.seconds or 0.0 for each in train)
    row = next(row for row in ROWS if seconds / 3600 < row.hours)
    texts = Texts((each.text for each in train), (each.text for each in dev))
    start, output = starting_model(options.start_from, texts), Path(options.output)
    chosen = {"data.train": paths[0], "data.dev": paths[1],
              "training.output_dir": f"exp/{output.stem}"}  # fmt: skip
    values = planned(row, texts, start, chosen)
    base = f"conf/{row.base}.yaml" if start is None else f"conf/finetune.yaml, from {start}"
    about = columns(by_manifest([*train, *dev], paths, str)).split("\n")
    about = [*map(printable, about), f"begins with {base}, by {seconds / 3600:.2f} h and the texts"]
    with replacing(output) as temporary:
        lines = "".join(f"# {line}".rstrip() + "\n" for line in ["A plan by asrkit plan.", *about])
        text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
        temporary.write_text(lines + text, encoding="utf-8")
        config = load_training(temporary, [])
    print("\n".join(about))
    if start and (speakers := {s for each in dev if (s := each.utterance.speaker)}):
        print(f"{paths[1]}: {heard_speakers(start, speakers)}")
    with torch.device("meta"):
        size = sum(p.numel() for p in build_model(config.model, 256).parameters()) / 1e6
    row = min(ROWS, key=lambda each: abs(math.log(each.millions / size)))
    audio = seconds * sum(1.0 / factor for factor in config.augmentation.speed_factors)
    audio *= int(resolved(config, audio).training.epochs)
    print(
        f"{audio / 3600:.1f} h of audio in all epochs: about {duration(audio / row.speed)} of "
        f"training on {row.machine}, {row.speed:g} s of audio a second (docs/training.md)"
    )
    print(f"{output} written: asrkit train --config {output}")
    return 0


def usable(facts: Iterable[Facts], path: str) -> list[Facts]:
    """Return the utterances with a text and a length; name how many others there are."""
    found = list(facts)
    kept = [each for each in found if each.text.strip() and each.seconds]
    if not kept:
        raise ManifestError(
            f"{path} has no readable recording with a text: asrkit data check {path}"
        )
    if len(kept) < len(found):
        print(
            f"{path}: {len(found) - len(kept)} of {len(found)} utterances have no text or cannot "
            f"be read: asrkit data check {path}"
        )
    return kept


def starting_model(wanted: str | None, texts: Texts) -> str | None:
    """Return the model to fine-tune: the wanted one, or a ready one whose labels fit, or None."""
    if wanted is not None:
        return None if wanted == "none" else wanted
    return next(
        (name for name, path in ready_models().items() if texts.fit(load_model(path))), None
    )
