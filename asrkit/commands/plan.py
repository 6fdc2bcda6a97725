"""Write a training configuration that fits a corpus: asrkit plan TRAIN DEV"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from asrkit.atomic_write import replacing
from asrkit.cli.parser import Parser, Target
from asrkit.cli.progress import bar

if TYPE_CHECKING:
    from asrkit.data.checks.facts import Facts


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit plan", __doc__,
        "asrkit plan my/train.jsonl my/dev.jsonl --output mine.yaml\n"
        "  asrkit train --config mine.yaml\n\n"
        "exit status: 0 planned, 2 nothing was written",
    )  # fmt: skip
    arguments.add_argument("train", help="manifest or folder of shards to train on")
    arguments.add_argument("dev", help="manifest or folder of shards to measure with")
    arguments.add_argument(
        "--output", required=True, type=Target, metavar="FILE", help="configuration to write, YAML"
    )
    return arguments.run(plan, argv)


Values = dict[str, dict[str, Any]]  # of a configuration, by section and key


class Row(NamedTuple):
    """A row of the table in docs/training.md, section "Choose a configuration"."""

    hours: float  # of recordings, at most
    base: str  # configuration of conf/
    vocab_size: int | None  # number of sub-words; None for characters
    settings: dict[str, Any]  # other differences from the base
    speed: float  # seconds of audio a second of training
    machine: str  # where this speed was measured, or estimated from that of another size


AUTO = {"training.epochs": "auto", "training.average": "auto"}
WIDER = {"model.num_layers": 6, "model.dim": 144, "model.ffn_dim": 576, "training.epochs": 20}
ROWS = (
    Row(2, "conformer", None, {}, 36, "one CPU core"),
    Row(4, "librispeech5", None, AUTO, 61, "two CPU cores"),
    Row(8, "librispeech5", 128, AUTO, 61, "two CPU cores"),
    Row(40, "librispeech5", 256, AUTO | WIDER, 20, "two CPU cores"),
    Row(400, "librispeech100", 300, {}, 4500, "an H200"),
    Row(math.inf, "librispeech", 500, {}, 1800, "an H200"),
)
FEW_WORDS, OFTEN = 300, 10  # most words of a set of commands, least mean occurrence of each
SCRIPT = 500  # different characters from which each is a syllable or a word
NOT_OURS = ("recipe", "licence", "languages")  # keys about the corpus of a shipped configuration


def tokenizer_of(row: Row, train: Counter[str], dev: Counter[str]) -> str:
    """Return the kind of labels: words for a fixed set of frequent words with those of dev."""
    few = 0 < len(train) <= FEW_WORDS and train.total() >= OFTEN * len(train)
    if few and dev.keys() <= train.keys():
        return "words"
    many = len({letter for word in train for letter in word}) > SCRIPT
    return "characters" if many or row.vocab_size is None else "unigram"


def planned(row: Row, tokenizer: str, chosen: dict[str, Any]) -> Values:
    """Return the values of a configuration.

    Args:
        chosen: more settings, by dotted key: the manifests and the folder.
    """
    from asrkit.config.read_yaml import read_values

    chosen = chosen | row.settings | {"text.tokenizer": tokenizer, "text.case": "keep"}
    chosen |= {"text.vocab_size": row.vocab_size} if tokenizer == "unigram" else {}
    values: Values = read_values(row.base, [])
    for section, keys in (("data", NOT_OURS), ("text", ("vocab_size",))):
        for key in keys:
            values.get(section, {}).pop(key, None)
    for key, value in chosen.items():
        section, _, name = key.partition(".")
        values[section][name] = value
    return values


def plan(options: argparse.Namespace) -> int:
    import yaml

    from asrkit.commands.data_check import refuse_twice
    from asrkit.data.checks.measure import inspect_all, valid_entries
    from asrkit.training.progress import duration
    from asrkit.training.schedule import resolved
    from asrkit.training.warm_start import load_training

    paths = options.train, options.dev
    refuse_twice(paths)
    entries = [valid_entries(path) for path in paths]
    train, dev = (
        usable(bar(inspect_all(part, decode=False), path, "file", len(part)), path)
        for part, path in zip(entries, paths, strict=True)
    )
    seconds = sum(each.seconds or 0.0 for each in train)
    row = next(row for row in ROWS if seconds / 3600 < row.hours)
    words = [Counter(w for each in part for w in each.text.split()) for part in (train, dev)]
    output = Path(options.output)
    chosen = {"data.train": paths[0], "data.dev": paths[1],
              "training.output_dir": f"exp/{output.stem}"}  # fmt: skip
    hours = f"{seconds / 3600:.2f} h"
    about = f"begins with conf/{row.base}.yaml, for {hours} and {len(words[0])} words"
    with replacing(output) as temporary:
        values = planned(row, tokenizer_of(row, *words), chosen)
        text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
        temporary.write_text(f"# A plan by asrkit plan: {about}\n{text}", encoding="utf-8")
        config = load_training(temporary, [])
    print(about)
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
    from asrkit.data.manifest import ManifestError

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
