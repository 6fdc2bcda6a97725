"""Write recordings with pauses inside and silence after them, each one turn of a speaker.

    python tools/paused.py --model small-en-alnum --output-dir data/paused data/an4/dev.jsonl

A pause is put between words, at the quietest place between the middles of two words of the forced
alignment. With --join, a turn has several recordings of a speaker, with pauses between them. Pauses
are white noise as loud as the quietest 20 ms of the recording. `asrkit evaluate --turns`
measures on such recordings when a turn ends.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile

from asrkit import audio
from asrkit.build import build_normalizer
from asrkit.data.labelled import Labelled, read_labelled
from asrkit.data.manifest import LeftOut
from asrkit.errors import UserError
from asrkit.evaluation.outcomes import ReferenceRecording, aligned
from asrkit.model import FULL
from asrkit.model_file import load_model
from asrkit.runtime import recognizer_of

QUIET = audio.SAMPLE_RATE // 50  # samples whose loudness is that of the background


class Pauses(NamedTuple):
    """The pauses of a turn, in seconds."""

    share: float  # probability of a pause at each border of words
    shortest: float
    longest: float
    after: float  # silence after the turn


def borders(samples: np.ndarray, middles: list[float]) -> list[int]:
    """Return the quietest place between each two neighbours of `middles`, in samples."""
    found = []
    for before, after in pairwise(round(each * audio.SAMPLE_RATE) for each in middles):
        near = np.square(samples[before : max(after, before + QUIET)], dtype=np.float64)
        energy = np.convolve(near, np.ones(min(QUIET, len(near))), "valid")
        found.append(before + int(energy.argmin()) + QUIET // 2)
    return found


def background(samples: np.ndarray) -> float:
    """Return the root mean square of the quietest 20 ms of (n,) samples."""
    blocks = samples[: len(samples) // QUIET * QUIET].reshape(-1, QUIET)
    return float(np.sqrt(np.square(blocks, dtype=np.float64).mean(axis=1).min(initial=1e-4)))


def paused(
    parts: list[tuple[np.ndarray, list[int]]], pauses: Pauses, draw: np.random.Generator
) -> np.ndarray:
    """Return a turn: recordings with pauses at some of their places, and between them.

    Args:
        parts: samples (n,) of each recording, with the places where a pause may be.
    """
    level = min(background(samples) for samples, _ in parts)

    def silence(shortest: float, longest: float) -> np.ndarray:
        count = int(draw.uniform(shortest, longest) * audio.SAMPLE_RATE)
        return level * draw.standard_normal(count)

    mixed = []
    for samples, places in parts:
        if mixed:
            mixed.append(silence(pauses.shortest, pauses.longest))
        chosen = [place for place in places if draw.random() < pauses.share]
        first, *others = np.split(samples, chosen)
        mixed.append(first)
        for other in others:
            mixed += [silence(pauses.shortest, pauses.longest), other]
    return np.concatenate([*mixed, silence(pauses.after, pauses.after)])


def turns(
    recordings: list[Labelled], sizes: tuple[int, int], draw: np.random.Generator
) -> Iterator[list[Labelled]]:
    """Yield groups of a speaker's recordings, each of `sizes[0]` to `sizes[1]` of them."""
    for _, own in groupby(recordings, key=lambda each: each.speaker):
        left = list(own)
        while left:
            size = int(draw.integers(sizes[0], sizes[1] + 1))
            yield left[:size]
            left = left[size:]


def numbers(text: str) -> tuple[float, float]:
    """Return the numbers A and B of "A,B", or twice the number of "A"; a type of argument."""
    first, _, last = text.partition(",")
    low, high = float(first), float(last or first)
    if not 0.0 <= low <= high:
        raise argparse.ArgumentTypeError(f"must be A,B with 0 ≤ A ≤ B, got {text!r}")
    return low, high


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="small-en-alnum", help="model that aligns the texts")
    parser.add_argument("--share", type=float, default=0.4, help="share of borders with a pause")
    parser.add_argument("--pause-ms", type=numbers, default=(200.0, 900.0), metavar="A,B")
    parser.add_argument("--after-ms", type=float, default=2500.0, help="silence after a turn")
    parser.add_argument("--join", type=numbers, default=(1.0, 1.0), metavar="A,B",
                        help="recordings of a turn")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("manifest")
    options = parser.parse_args(argv)
    (options.output_dir / "audio").mkdir(parents=True, exist_ok=True)
    shortest, longest = (each / 1000 for each in options.pause_ms)
    pauses = Pauses(options.share, shortest, longest, options.after_ms / 1000)
    file, draw = load_model(options.model), np.random.default_rng(options.seed)
    aligner, normalize = recognizer_of(file, FULL), build_normalizer(file.config.text)
    left_out: list[LeftOut] = []
    sizes = (max(1, round(options.join[0])), max(1, round(options.join[1])))
    lines = []
    for turn in turns(list(read_labelled(options.manifest, left_out)), sizes, draw):
        parts = []
        for recording in turn:
            samples, text = recording.load(), normalize(recording.text or "")
            found = aligned(aligner, ReferenceRecording(recording.id, samples, text))
            words = [] if found is None else found.words
            middles = [(word.start + word.end) / 2 for word in words]
            parts.append((samples, borders(samples, middles)))
        samples = paused(parts, pauses, draw)
        path = Path("audio") / f"{turn[0].id}.flac"
        soundfile.write(options.output_dir / path, samples.clip(-1.0, 1.0), audio.SAMPLE_RATE)
        line = {"id": turn[0].id, "audio": str(path), "speaker": turn[0].speaker,
                "duration": len(samples) / audio.SAMPLE_RATE,
                "text": " ".join(each.text or "" for each in turn)}  # fmt: skip
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    (options.output_dir / "manifest.jsonl").write_text("".join(lines), encoding="utf-8")
    for each in left_out:
        print(f"left out {each}", file=sys.stderr)
    print(f"{len(lines)} turns in {options.output_dir / 'manifest.jsonl'}")
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except UserError as error:
        sys.exit(str(error))
