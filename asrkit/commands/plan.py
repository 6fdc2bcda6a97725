"""Write a training configuration that fits a corpus and this machine: asrkit plan TRAIN DEV"""

import argparse
import logging
import random
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
import yaml
from tqdm import tqdm

from asrkit import audio
from asrkit.atomic_write import replacing
from asrkit.build import build_frontend, build_model
from asrkit.commands.data import refuse_twice
from asrkit.config import Config
from asrkit.data.checks.facts import Facts, Signal
from asrkit.data.checks.measure import ManifestEntry, inspect, inspect_all, valid_entries
from asrkit.data.checks.report import by_manifest, columns
from asrkit.data.manifest import ManifestError
from asrkit.errors import printable
from asrkit.model_file import load_model
from asrkit.pretrained import ready_models
from asrkit.training.checkpoints import Checkpoints, EpochWeights
from asrkit.training.dataset import feature_statistics, load_corpus
from asrkit.training.device import CUDA
from asrkit.training.distributed import Ranks
from asrkit.training.planning import Corpus, Measures, Values, planned, similar, writes
from asrkit.training.progress import duration
from asrkit.training.schedule import resolved
from asrkit.training.trainer import Trainer
from asrkit.training.warm_start import heard_speakers, load_training

HEARD = 60  # utterances of train whose samples are measured
FIRST_STEPS = 2  # steps before the measurement
LOW_HZ = 4200  # sound up to here is that of a telephone: 8 kHz
DAY = 86400.0


class Speed(NamedTuple):
    """Speed of the training on this machine."""

    audio_a_second: float
    steps: int  # number of measured steps
    seconds: float  # of the whole training, without validation
    where: str


def plan(options: argparse.Namespace) -> int:
    paths = options.train, options.dev
    refuse_twice(paths)
    entries = [valid_entries(path) for path in paths]
    train, dev = (
        usable(tqdm(inspect_all(part, decode=False), path, len(part), False, disable=None), path)
        for part, path in zip(entries, paths, strict=True)
    )
    signals = heard(entries[0])
    ranks = Ranks()
    corpus = Corpus(train, dev, paths, band_of(train, signals), ranks.device.type == CUDA)
    measures = Measures(corpus)
    start = starting_model(options.start_from, measures)
    output = Path(options.output)
    values, reasons = planned(measures, start, f"exp/{output.stem}")
    about = [*map(printable, description(corpus, signals))]
    with replacing(output) as temporary:
        temporary.write_text(as_yaml(values, reasons, about), encoding="utf-8")
        config = load_training(temporary, [])
    print("\n".join(about), end="\n\n")
    for key, why in reasons.items():
        section, _, name = key.partition(".")
        print(f"{key}={inline(values[section][name])}  {why}" if key else why)
    if start and (speakers := {s for each in dev if (s := each.utterance.speaker)}):
        print(f"{paths[1]}: {heard_speakers(start, speakers)}")
    print()
    if options.seconds:
        print(
            f"measuring {options.seconds:g} s of training, once the corpus is read (--seconds 0: "
            "do not measure)", flush=True,
        )  # fmt: skip
        print(outlook(measured(config, ranks, options.seconds), config))
    rates, alike = similar(measures)
    if not alike:
        print(
            f"no corpus like this was measured (hours, {len(measures.words)} different words); "
            "the nearest ones:"
        )
    for each in rates:
        print(
            f"reached with {each.corpus}, {each.hours:g} h, {each.words} different words, "
            f"{each.labels}: {each.full:g} % WER in full context, {each.live:g} % at 640 ms"
        )
    print(
        "source: docs/training.md, Choose a configuration; yours depends on voices, noise and words"
    )
    print(f"\n{output} written: asrkit train --config {output}")
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


def heard(entries: list[ManifestEntry]) -> list[Signal]:
    """Return the measurements of some utterances' samples, the same in every run."""
    chosen = random.Random(0).sample(entries, min(HEARD, len(entries)))
    return [found for each in chosen if (found := inspect(each).signal)]


def band_of(train: list[Facts], signals: list[Signal]) -> int:
    """Return the highest frequency of recordings that were all at 8 kHz or less; 0 for others."""
    rates = [each.sample_rate for each in train if each.sample_rate]
    if rates and max(rates) < audio.SAMPLE_RATE:
        return max(rates) // 2
    highest = [each.highest_hz for each in signals if each.highest_hz is not None]
    return 4000 if highest and max(highest) < LOW_HZ else 0


def starting_model(wanted: str | None, measures: Measures) -> str | None:
    """Return the model to fine-tune: the wanted one, or a ready one whose labels fit, or None."""
    if wanted is not None:
        return None if wanted == "none" else wanted
    return next(
        (name for name, path in ready_models().items() if writes(load_model(path), measures)), None
    )


def description(corpus: Corpus, signals: list[Signal]) -> list[str]:
    totals = by_manifest([*corpus.train, *corpus.dev], corpus.paths, str)
    lines = columns(totals).split("\n")
    levels = [10 * torch.tensor(each.rms).log10().item() * 2 for each in signals if each.rms]
    if len(levels) > 1:
        low, *_, high = statistics.quantiles(levels, n=10)
        lines.append(f"level of {len(levels)} utterances: {low:.0f} to {high:.0f} dB (10 to 90 %)")
    return lines


def as_yaml(values: Values, reasons: dict[str, str], about: list[str]) -> str:
    """Format a configuration with the reasons of its values as comments."""
    lines = [f"# {line}".rstrip() for line in ["A plan by asrkit plan.", *about, reasons[""]]]
    for section, keys in values.items():
        lines.append(f"{section}:")
        for key, value in keys.items():
            text = f"{key}: {inline(value)}"
            why = reasons.get(f"{section}.{key}")
            lines.append(f"  {text}" + (f" # {why}" if why else ""))
    return "\n".join(lines) + "\n"


def inline(value: object) -> str:
    """Format a value as YAML in one line."""
    text: str = yaml.safe_dump(
        value, default_flow_style=True, width=10_000, allow_unicode=True, sort_keys=False
    )
    return text.removesuffix("\n").removesuffix("\n...")


def measured(config: Config, ranks: Ranks, budget: float) -> Speed:
    """Return the speed of real training steps for `budget` seconds, which write no file."""
    with quiet(), tempfile.TemporaryDirectory() as folder:
        corpus = load_corpus(config)
        config = resolved(config, corpus.seconds)
        model = build_model(config.model, corpus.encode.tokenizer.vocab_size)
        frontend = build_frontend(config.model)
        model.encoder.set_statistics(*feature_statistics(corpus.train, frontend, 60.0))
        weights = EpochWeights(Path(folder), 1, False)
        trainer = Trainer(model, corpus, config, Checkpoints(Path(folder), 1), weights, ranks)
        seconds, count, start = 0.0, 0, time.monotonic()
        steps = tqdm(trainer.steps(), "training steps", leave=False, disable=None)
        for number, step in enumerate(steps):
            if number == FIRST_STEPS:
                seconds, count, start = 0.0, 0, time.monotonic()
            trainer.train_step(step)
            seconds, count = seconds + step.seconds, count + 1
            if number >= FIRST_STEPS and time.monotonic() - start > budget:
                break
        rate = seconds / (time.monotonic() - start)
    return Speed(rate, count, int(config.training.epochs) * corpus.seconds / rate, ranks.where)


@contextmanager
def quiet() -> Iterator[None]:
    """Leave the training's log out."""
    logger = logging.getLogger("asrkit")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def outlook(speed: Speed, config: Config) -> str:
    """Return the lines about the time of the training."""
    lines = [
        f"about {duration(speed.seconds)} of training here ({speed.where}), besides validation: "
        f"{speed.audio_a_second:.0f} s of audio a second in {speed.steps} steps"
    ]
    if speed.seconds > DAY:
        lines.append(
            "more than a day: use a GPU, or fewer epochs, as in training.epochs="
            f"{max(1, int(int(config.training.epochs) * DAY / speed.seconds))}"
        )
    return "\n".join(lines)
