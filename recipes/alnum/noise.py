"""Synthetic noises to mix into training: coloured noise, mains hum, babble of many voices."""

import sys
from pathlib import Path

import numpy as np
import soundfile

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpus import Utterance

RATE = 16000
SECONDS = 10
VOICES = 8  # of babble, at the same time
KINDS = ("room", "hum", "talk")


def make_noises(rows: list[Utterance], count: int, folder: Path) -> list[Utterance]:
    """Write `count` files of noise, of all kinds in turn.

    Args:
        rows: recordings at RATE, whose voices make the talk.
        count: files to make.
        folder: folder of their audio.
    """
    folder.mkdir(parents=True, exist_ok=True)
    noises: list[Utterance] = []
    for index in range(count):
        rng = np.random.default_rng([0, index])
        kind = KINDS[index % len(KINDS)]
        samples = coloured(rng)
        if kind == "hum":
            samples = samples + hum(rng)
        elif kind == "talk":
            samples = 0.2 * samples + talk(rows, rng)
        path = folder / f"{kind}-{index:03d}.flac"
        soundfile.write(path, 0.3 * samples / np.abs(samples).max(), RATE, subtype="PCM_16")
        noises.append(
            {"id": path.stem, "audio": path, "duration": SECONDS, "text": kind, "speaker": kind}
        )
    return noises


def coloured(rng: np.random.Generator) -> np.ndarray:
    """Noise whose power falls by 0 (white) to 6 dB (brown) an octave."""
    spectrum = np.fft.rfft(rng.standard_normal(SECONDS * RATE))
    frequencies = np.maximum(np.arange(len(spectrum)) / SECONDS, 20.0)
    samples = np.fft.irfft(spectrum * frequencies ** -rng.uniform(0.0, 1.0))
    return samples / samples.std()


def hum(rng: np.random.Generator) -> np.ndarray:
    """Mains hum of 50 or 60 Hz with harmonics."""
    times = np.arange(SECONDS * RATE) / RATE
    base, harmonics = rng.choice([50.0, 60.0]), np.arange(1, 9)
    phases, levels = rng.uniform(0.0, 2 * np.pi, 8), rng.uniform(0.0, 1.0, 8) / harmonics
    waves = np.sin(2 * np.pi * base * harmonics * times[:, None] + phases)
    return waves @ (levels * rng.uniform(1.0, 4.0))


def talk(rows: list[Utterance], rng: np.random.Generator) -> np.ndarray:
    """Babble of many voices, none of which is intelligible."""
    total = np.zeros(SECONDS * RATE)
    for _ in range(VOICES):
        voice = np.zeros(0)
        while len(voice) < len(total):
            samples, _ = soundfile.read(rows[rng.integers(len(rows))]["audio"])
            voice = np.concatenate([voice, samples])
        total += np.roll(voice[: len(total)], rng.integers(len(total)))
    return total / total.std()
