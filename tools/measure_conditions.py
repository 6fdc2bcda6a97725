"""How a model hears recordings that are softer, come after a silence, or through a telephone."""

import sys
from collections.abc import Callable

import numpy as np
import torch

import asrkit
from asrkit.audio import through_telephone
from asrkit.build import build_normalizer
from asrkit.cli.options import parser
from asrkit.cli.run import run_command
from asrkit.data.cut_audio import load_samples
from asrkit.data.cuts import load_cuts, text_of
from asrkit.evaluation.wer import wer
from asrkit.model_file import load_model

SILENCE = 48000  # samples at 16 kHz
NOISES = (0.0, 1e-5, 1e-4, 1e-3)  # of full scale, white
SOFTER = (10, 20, 30)  # dB


def after_silence(samples: np.ndarray, level: float) -> np.ndarray:
    noise = np.random.default_rng(0).standard_normal(SILENCE, dtype=np.float32)
    return np.concatenate([np.float32(level) * noise, samples])


def softer(samples: np.ndarray, decibels: float) -> np.ndarray:
    return samples * np.float32(10 ** (-decibels / 20))


def conditions() -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """What is done to each recording, by name."""
    found: dict[str, Callable[[np.ndarray], np.ndarray]] = {"as recorded": lambda samples: samples}
    for level in NOISES:
        found[f"after 3 s of noise of {level:g}"] = lambda x, level=level: after_silence(x, level)
    for decibels in SOFTER:
        found[f"{decibels} dB softer"] = lambda x, decibels=decibels: softer(x, decibels)
    found["through a telephone"] = through_telephone
    return found


def main(argv: list[str] | None = None) -> int:
    arguments = parser(
        "measure_conditions", __doc__,
        "python tools/measure_conditions.py --model small-en-alnum data/an4/dev.jsonl",
    )  # fmt: skip
    arguments.add_argument("manifest")
    arguments.add_argument("--model", required=True)

    def measure(options) -> int:  # type: ignore[no-untyped-def]
        torch.set_num_threads(1)
        recognizer = asrkit.load(options.model, endpointer=asrkit.Endpointer())
        normalize = build_normalizer(load_model(options.model).config.text)
        said = [(normalize(text_of(c)), load_samples(c)) for c in load_cuts(options.manifest, [])]
        for name, change in conditions().items():
            heard = [recognizer.transcribe(change(samples)).text for _, samples in said]
            print(f"{name:30}{wer([text for text, _ in said], heard)}", flush=True)
        return 0

    return run_command(measure, arguments, argv)


if __name__ == "__main__":
    sys.exit(main())
