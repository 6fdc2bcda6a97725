"""Neural synthetic speech of the sentences of text files, by Kokoro-82M, to train on.

28 English voices, and blends of two. An utterance is a function of (seed, index) and its text, so
an interrupted preparation resumes where it stopped.
"""

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))  # a package is called kokoro too
from corpus import RecipeError, Splits, Utterance, refused, write_manifests
from digits.prepare import SAMPLE_RATE
from librispeech.more_text import cleaned, selected
from recordings import Speech, in_random_order, kept_or_made, synthesised
from synthesizer import RATE, Kokoro, check_packages

from asrkit.data.manifest import lines_of
from asrkit.errors import UserError
from asrkit.text.normalization import Normalization, Normalizer

DEV_EVERY, DEV_VOICES = 20, {"af_jessica", "am_liam", "bf_lily", "bm_daniel"}
SPEED, BLENDED, SHARE = (0.85, 1.2), 0.5, (0.3, 0.7)  # share of the second voice in a blend
WORDS = (5, 45)  # of a sentence
MOST_SYMBOLS = 509
# Speech with other values is rejected.
LOWEST_PEAK, QUIET = 0.05, 0.02  # QUIET is a share of the peak
LONGEST_PAUSE, SHORTEST = 1.5, 2.0  # seconds
SYMBOL_SECONDS = (0.03, 0.1)  # a symbol's at speed 1, without silence at both ends
MARGIN = 0.25  # seconds of the silence at both ends that stay


kokoro = cache(Kokoro)  # one in a process


def speak(folder: Path, text: str, held_out: bool, rng: np.random.Generator) -> Speech:
    """A text by a random voice or a blend of two.

    Raises:
        RecipeError: if the result is not speech of the text.
    """
    import soxr

    synthesizer = kokoro(folder)
    voices = [name for name in synthesizer.voices if (name in DEV_VOICES) is held_out]
    count = 2 if rng.random() < BLENDED else 1
    names = [voices[i] for i in rng.choice(len(voices), count, replace=False)]
    speed, share = rng.uniform(*SPEED), rng.uniform(*SHARE) if count == 2 else 0.0
    voice = sum(
        weight * synthesizer.voices[name]
        for weight, name in zip((1 - share, share), names, strict=False)
    )
    symbols = synthesizer.symbols_of(text, "en-gb" if names[0].startswith("b") else "en-us")
    if not 0 < len(symbols) <= MOST_SYMBOLS:
        raise RecipeError(f"{len(symbols)} symbols")
    samples = checked(synthesizer(symbols, voice, speed), len(symbols) / speed)
    return soxr.resample(samples, RATE, SAMPLE_RATE), "+".join(names)


def checked(samples: np.ndarray, symbols: float) -> np.ndarray:
    """Speech without most of the silence at both ends.

    Raises:
        RecipeError: if its length is impossible for a number of symbols at speed 1, or it is
            silent or has a long pause.
    """
    peak = float(np.abs(samples).max(initial=0))
    if not LOWEST_PEAK < peak < np.inf:
        raise RecipeError(f"peak {peak}")
    loud = np.flatnonzero(np.abs(samples) > QUIET * peak) / RATE
    seconds, pause = loud[-1] - loud[0], np.diff(loud).max(initial=0)
    low, high = (symbols * value for value in SYMBOL_SECONDS)
    if not max(low, SHORTEST - 2 * MARGIN) < seconds < high or pause > LONGEST_PAUSE:
        raise RecipeError(f"{seconds:.1f} s with a pause of {pause:.1f} s for {symbols} symbols")
    first, last = max(0.0, loud[0] - MARGIN), loud[-1] + MARGIN
    return samples[int(first * RATE) : int(last * RATE)] * min(1.0, 0.98 / peak)


def make_utterance(
    output: Path, packages: Path, seed: int, task: tuple[int, str]
) -> Utterance | None:
    """Write one recording, unless it is there; None if its speech was rejected."""
    index, text = task
    rng = np.random.default_rng([seed, index])
    path = output / "audio" / f"kokoro-{index:06d}.opus"
    make = partial(speak, packages, text, index % DEV_EVERY == 0, rng)
    return kept_or_made(path, {"seed": seed, "text": text}, make)


def read_texts(paths: list[Path], seed: int) -> Iterator[str]:
    """The sentences of text files as they are written, in random order, from each file in turn."""
    orders = []
    for path in paths:
        found, left_out = selected(map(in_words, read_lines(path)), set())
        if left_out:
            print(f"{path}: left out:", *(f"{n} {reason}" for reason, n in left_out.items()))
        orders.append(in_random_order([*found.values()], WORDS, seed))
    for texts in itertools.zip_longest(*orders):
        yield from filter(None, texts)


def read_lines(path: Path) -> Iterator[str]:
    for _, line in lines_of(path):
        yield line.decode("utf-8")


def in_words(line: str) -> str:
    """A line with its numbers in words."""
    return english_numbers()(line) if any(map(str.isdigit, line)) else line


@cache
def english_numbers() -> Normalizer:
    return Normalizer(Normalization(brackets="keep", numbers="en"))


def split(rows: list[Utterance], as_written: bool) -> Splits:
    """Return train, and dev, which has voices of its own."""
    splits: Splits = {"train": [], "dev": []}
    for row in rows:
        text = row["text"] if as_written else cleaned(row["text"])[0].upper()
        name = "dev" if DEV_VOICES.issuperset(row["speaker"].split("+")) else "train"
        splits[name].append(row | {"text": text})
    return splits


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "recipes/kokoro/speak.py", description=__doc__,
        epilog="example: python recipes/kokoro/speak.py --texts data/text/austen.txt "
        "--hours 10 --output-dir data/kokoro --packages packages",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--output-dir", type=Path, required=True, help="folder of the corpus")
    parser.add_argument(
        "--texts", type=Path, nargs="+", required=True, metavar="FILE",
        help="texts, a sentence or a paragraph a line; equal numbers of sentences from each",
    )  # fmt: skip
    parser.add_argument("--hours", type=float, default=10.0, help="hours of speech (10)")
    parser.add_argument("--written", action="store_true", help="keep capitals and marks of texts")
    parser.add_argument(
        "--packages", type=Path, required=True, metavar="DIR",
        help="folder of the packages that hold Kokoro, see README.md",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="another seed, another corpus (0)")
    parser.add_argument("--jobs", type=int, default=2, help="processes of one thread (2)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare the corpus; returns the exit code."""
    parser = command_line()
    args = parser.parse_args(argv)
    if not 0 < args.hours <= 10_000 or args.seed < 0 or not 1 <= args.jobs <= 256:
        parser.error("--hours must be above 0, --seed 0 or more, --jobs at least 1")
    output = args.output_dir.resolve()
    packages = args.packages.resolve()
    try:
        check_packages(packages)
        (output / "audio").mkdir(parents=True, exist_ok=True)
        make = partial(make_utterance, output, packages, args.seed)
        rows = synthesised(read_texts(args.texts, args.seed), args.hours, make, args.jobs)
        write_manifests(split(rows, args.written), output)
    except (RecipeError, UserError, UnicodeDecodeError, OSError, ImportError) as error:
        return refused("kokoro", error, "speak")
    except KeyboardInterrupt:
        print("speak.py: interrupted; the same command resumes here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
