"""Word errors of one trained model: python -m tools.studies.positions.measure --model MODEL …"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asrkit import audio
from asrkit.atomic_write import replacing
from asrkit.build import build_normalizer
from asrkit.cli.options import parser
from asrkit.cli.run import run_command
from asrkit.config import Config
from asrkit.data.manifest import read_manifest
from asrkit.evaluation.wer import cer, wer
from asrkit.model_file import ModelFile, load_model
from asrkit.runtime import Recognizer, recognizer_of
from asrkit.transcription.batches import batches
from tools.studies.positions.lengths import TIMES, Utterance, join

CONTEXTS: dict[str, int | None] = {"full": None, "640": 640, "160": 160}  # ms of a chunk
LONG_CONTEXTS = ("full", "640")
BATCH_SECONDS = 60.0

Errors = dict[str, dict[str, list[int]]]  # unit -> "errors" and "units" of every recording


def main(argv: list[str] | None = None) -> int:
    arguments = parser(
        "tools.studies.positions.measure", __doc__,
        "python -m tools.studies.positions.measure --model exp/conformer/model.safetensors \\\n"
        "    --manifest data/digits/test.jsonl --output exp/conformer/measures.json",
    )  # fmt: skip
    arguments.add_argument("--model", required=True, help="a .safetensors model file")
    arguments.add_argument("--manifest", required=True, help="held-out recordings and their texts")
    arguments.add_argument("--output", required=True, type=Path, help="JSON file")
    return run_command(measure, arguments, argv)


def measure(options: argparse.Namespace) -> int:
    file = load_model(options.model)
    normalize = build_normalizer(file.config.text)
    utterances = [
        Utterance(load(u.audio, u.start or 0.0, u.duration), normalize(u.text or ""))
        for u in read_manifest(options.manifest, [])
    ]
    measures = measures_of(file, utterances)
    with replacing(options.output) as temporary:
        temporary.write_text(json.dumps(measures), encoding="utf-8")
    return 0


def load(path: str, start: float, duration: float | None) -> Any:
    samples, rate = audio.read(path, start, duration)
    return audio.resample(audio.mono(samples), rate)


def measures_of(file: ModelFile, utterances: Sequence[Utterance]) -> dict[str, Any]:
    """The word and letter errors of a model, for the report."""
    rate, live = file.model.encoder.rate, file.config.context.live
    recognizers = {
        name: recognizer_of(file, rate.context(live, ms // rate.frame_ms if ms else "full"))
        for name, ms in CONTEXTS.items()
    }
    longest = longest_heard(file.config)
    rows = {times: join(utterances, times * longest * audio.SAMPLE_RATE) for times in TIMES}
    return {
        "kind": file.config.model.position.kind,
        "seed": file.config.training.seed,
        "parameters": sum(p.numel() for p in file.model.parameters()),
        "training": file.training,
        "longest_seconds": longest,
        "contexts": {name: errors(r, utterances) for name, r in recognizers.items()},
        "lengths": [
            {
                "times": times,
                "seconds": sum(len(row.samples) for row in made) / len(made) / audio.SAMPLE_RATE,
                "contexts": {name: errors(recognizers[name], made) for name in LONG_CONTEXTS},
            }
            for times, made in rows.items()
        ],
    }


def longest_heard(config: Config) -> float:
    """Seconds of the longest utterance of training, at its slowest speed."""
    seconds = max(
        u.duration or audio.info(u.audio).num_samples / audio.info(u.audio).sample_rate
        for u in read_manifest(config.data.train, [])
    )
    return seconds / min(config.augmentation.speed_factors)


def errors(recognizer: Recognizer, utterances: Sequence[Utterance]) -> Errors:
    """Errors in words, and in letters with all spaces left out.

    Training has no utterance that follows another, so no model writes the space between two: where
    they are joined, two right words count as two wrong ones.
    """
    waiting = [(index, utterance.samples) for index, utterance in enumerate(utterances)]
    outcomes = batches(recognizer, waiting, BATCH_SECONDS)
    texts = {outcome.number: str(outcome.result) for outcome in outcomes}
    pairs = [(utterance.text, texts[index]) for index, utterance in enumerate(utterances)]
    rates = {
        "words": [wer([text], [found]) for text, found in pairs],
        "letters": [cer([solid(text)], [solid(found)]) for text, found in pairs],
    }
    return {
        unit: {"errors": [r.errors for r in own], "units": [r.reference_units for r in own]}
        for unit, own in rates.items()
    }


def solid(text: str) -> str:
    return text.replace(" ", "")


if __name__ == "__main__":
    sys.exit(main())
