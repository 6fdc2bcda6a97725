"""Letters wrong against length: python -m tools.studies.positions.lengths --manifest FILE MODEL …

Held-out recordings are joined to audio longer than any of training. Spaces do not count: training
has no utterance that follows another, so no model writes the space between two.
"""

import argparse
import random
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from asrkit import audio
from asrkit.build import build_normalizer
from asrkit.cli.parser import Parser
from asrkit.cli.table import markdown
from asrkit.config import Config
from asrkit.data.manifest import read_manifest
from asrkit.evaluation.wer import cer
from asrkit.model_file import load_model
from asrkit.runtime import Recognizer, recognizer_of
from asrkit.transcription.batches import batches

TIMES = (1, 2, 5, 10)  # the duration of the longest utterance of training
CONTEXTS: dict[str, int | None] = {"full": None, "640 ms": 640}
BATCH_SECONDS = 60.0


class Utterance(NamedTuple):
    samples: np.ndarray  # float32 mono (n,) at 16 kHz
    text: str


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "tools.studies.positions.lengths", __doc__,
        "python -m tools.studies.positions.lengths --manifest data/digits/test.jsonl \\\n"
        "    exp/ablations/digits/positions/*/model.safetensors",
    )  # fmt: skip
    arguments.add_argument("--manifest", required=True, help="held-out recordings and their texts")
    arguments.add_argument("models", nargs="+", help="model files of one training set")
    return arguments.run(measure, argv)


def measure(options: argparse.Namespace) -> int:
    titles = [f"{context}, {times}×" for context in CONTEXTS for times in TIMES]
    rows = [[path, *letters_wrong(path, options.manifest)] for path in options.models]
    print(markdown(["model", *titles], rows))
    return 0


def letters_wrong(path: str, manifest: str) -> list[str]:
    """Return the letter error rate of a model file in each context at each length."""
    file = load_model(path)
    rate, live = file.model.encoder.rate, file.config.context.live
    normalize = build_normalizer(file.config.text)
    utterances = [
        Utterance(load(u.audio, u.start or 0.0, u.duration), normalize(u.text or ""))
        for u in read_manifest(manifest, [])
    ]
    longest = longest_heard(file.config) * audio.SAMPLE_RATE
    found = []
    for ms in CONTEXTS.values():
        context = rate.context(live, ms // rate.frame_ms if ms else "full")
        recognizer = recognizer_of(file, context)
        rows = (join(utterances, times * longest) for times in TIMES)
        found += [letter_errors(recognizer, row) for row in rows]
    return found


def load(path: str, start: float, duration: float | None) -> np.ndarray:
    samples, rate = audio.read(path, start, duration)
    return audio.resample(audio.mono(samples), rate)


def longest_heard(config: Config) -> float:
    """Return the seconds of the longest utterance of training, at its slowest speed."""
    seconds = max(
        u.duration or audio.info(u.audio).num_samples / audio.info(u.audio).sample_rate
        for u in read_manifest(config.data.train[0], [])
    )
    return seconds / min(config.augmentation.speed_factors)


def letter_errors(recognizer: Recognizer, utterances: Sequence[Utterance]) -> str:
    waiting = [(index, utterance.samples) for index, utterance in enumerate(utterances)]
    outcomes = batches(recognizer, waiting, BATCH_SECONDS)
    texts = {outcome.number: str(outcome.result) for outcome in outcomes}
    pairs = [(u.text.replace(" ", ""), texts[i].replace(" ", "")) for i, u in enumerate(utterances)]
    return cer([text for text, _ in pairs], [found for _, found in pairs]).percent


def join(utterances: Sequence[Utterance], num_samples: float) -> list[Utterance]:
    """Join the recordings to rows of about `num_samples`, in one order for every length.

    The order does not follow the manifest, whose neighbours may be one speaker's.
    """
    order = random.Random(0).sample(range(len(utterances)), len(utterances))
    rows = split([len(utterances[index].samples) for index in order], num_samples)
    return [concatenate([utterances[order[i]] for i in row]) for row in rows]


def split(sizes: Sequence[int], target: float) -> list[list[int]]:
    """Return indices in order, in groups whose sizes sum to about the target; no group is empty."""
    count = max(1, round(sum(sizes) / target))
    groups: list[list[int]] = [[] for _ in range(count)]
    before = 0
    for index, size in enumerate(sizes):
        groups[int((before + size / 2) / sum(sizes) * count)].append(index)  # by its middle
        before += size
    return [group for group in groups if group]


def concatenate(parts: Sequence[Utterance]) -> Utterance:
    samples = np.concatenate([part.samples for part in parts])
    return Utterance(samples, " ".join(part.text for part in parts))


if __name__ == "__main__":
    sys.exit(main())
