"""alnum: an4, fsdd and digits as one corpus of letters, numbers and commands in lower case.

It also has strings of digits, joined from single digits of one fsdd speaker. Users speak strings,
and a model that was trained on single digits of half a second recognises them badly. The corpus
also has noises for augmentation, because all three corpora were recorded in quiet rooms.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpus import (
    RecipeError,
    Splits,
    Utterance,
    explain,
    read_prepared,
    refused,
    write_manifests,
)

sys.path.insert(0, str(Path(__file__).resolve().parent))
from noise import make_noises

CORPORA = ("an4", "fsdd", "digits")
NOISES = 30
LONGEST = 7  # digits in a string
BETWEEN, AROUND = (0.02, 0.3), (0.1, 0.5)  # seconds of pause: shortest, longest


def read_corpora(folder: Path) -> dict[str, Splits]:
    """The prepared corpora of a folder, by name, their texts in lower case."""
    corpora = {}
    for name in CORPORA:
        if not (folder / name / "train.jsonl").is_file():
            source = "" if name == "digits" else " --download"
            command = f"python recipes/{name}/prepare.py --output-dir {folder / name}{source}"
            raise RecipeError(f"{folder / name} is not prepared: {command}")
        splits = read_prepared(folder / name)
        corpora[name] = {
            split: [row | {"text": row["text"].lower()} for row in splits[split]]
            for split in ("train", "dev")
        }
    return corpora


def repeated(rows: list[Utterance], times: int) -> list[Utterance]:
    """The utterances `times` times; the repetitions have ids of their own."""
    again = [row | {"id": f"{row['id']}-{n}"} for n in range(2, times + 1) for row in rows]
    return rows + again


def make_strings(rows: list[Utterance], count: int, folder: Path, seed: int) -> list[Utterance]:
    """Strings of digits, each of one speaker's recordings; each a function of (seed, its number).

    Args:
        rows: recordings of one digit each.
        count: strings to make.
        folder: folder of their audio.
        seed: another seed, other strings.
    """
    folder.mkdir(parents=True, exist_ok=True)
    speakers = sorted({row["speaker"] for row in rows})
    strings: list[Utterance] = []
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        speaker = rng.choice(speakers)
        own = [row for row in rows if row["speaker"] == speaker]
        chosen = [own[i] for i in rng.integers(len(own), size=rng.integers(1, LONGEST + 1))]
        digits, rate = read_digits([row["audio"] for row in chosen])
        samples = join(digits, rate, rng)
        path = folder / f"string-{index:05d}.flac"
        soundfile.write(path, samples, rate, subtype="PCM_16")
        strings.append(
            {
                "id": path.stem,
                "audio": path,
                "duration": len(samples) / rate,
                "text": " ".join(row["text"] for row in chosen),
                "speaker": speaker,
            }
        )
    return strings


def read_digits(paths: list[Path]) -> tuple[list[np.ndarray], int]:
    """The samples of some recordings, and the rate of all of them."""
    digits, rates = [], set()
    for path in paths:
        with explain(f"cannot read audio file {path}", "get a whole copy of the corpus"):
            samples, rate = soundfile.read(path)
        digits.append(samples)
        rates.add(rate)
        if samples.ndim != 1 or not len(samples) or len(rates) > 1:
            raise RecipeError(f"{path} is empty, not mono, or has another sample rate than others")
    return digits, rates.pop()


def join(digits: list[np.ndarray], rate: int, rng: np.random.Generator) -> np.ndarray:
    """Recordings joined, with pauses of noise as loud as their quietest background.

    Pauses of digital silence, which no microphone records, would tell a model where words end.
    """
    quietest = min(background(samples, rate) for samples in digits)

    def pause(seconds: tuple[float, float]) -> np.ndarray:
        return rng.normal(0.0, quietest, int(rng.uniform(*seconds) * rate))

    pieces = [pause(AROUND)]
    for samples in digits:
        pieces += [samples, pause(BETWEEN)]
    return np.concatenate([*pieces[:-1], pause(AROUND)]).clip(-1.0, 1.0)


def background(samples: np.ndarray, rate: int) -> float:
    """The root mean square of the quietest 20 ms."""
    size = min(len(samples), rate // 50)
    frames = samples[: len(samples) // size * size].reshape(-1, size)
    return float(np.sqrt(np.square(frames).mean(axis=1).min()))


def repetition(text: str) -> tuple[str, int]:
    """A corpus and its repetitions in an epoch, from CORPUS=N."""
    name, _, times = text.partition("=")
    if name not in CORPORA or not times.isdecimal() or int(times) < 1:
        known = ", ".join(CORPORA)
        raise argparse.ArgumentTypeError(f"must be CORPUS=N, of {known}, N from 1; got {text!r}")
    return name, int(times)


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "recipes/alnum/prepare.py",
        description="Join the prepared corpora an4, fsdd and digits into one.",
        epilog="example: python recipes/alnum/prepare.py --output-dir data/alnum",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output-dir", type=Path, required=True, help="folder of the manifests")
    parser.add_argument(
        "--data-dir", type=Path, help="folder with an4, fsdd and digits (beside --output-dir)"
    )
    parser.add_argument(
        "--repeat", type=repetition, nargs="*", default=[("an4", 2)], metavar="CORPUS=N",
        help="repetitions of a corpus in an epoch; the others have one (an4=2)",
    )  # fmt: skip
    parser.add_argument("--strings", type=int, default=1000, help="strings of digits (1000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of strings and noises (0)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare the corpus; returns the exit code."""
    parser = command_line()
    args = parser.parse_args(argv)
    if min(args.strings, args.seed) < 0:
        parser.error("--strings and --seed must be 0 or more")
    output, repeats = args.output_dir.resolve(), dict(args.repeat)
    try:
        corpora = read_corpora((args.data_dir or output.parent).resolve())
        train: list[Utterance] = []
        for name in CORPORA:
            train += repeated(corpora[name]["train"], repeats.get(name, 1))
        digits = corpora["fsdd"]["train"]
        train += make_strings(digits, args.strings, output / "audio", args.seed)
        dev = [row for name in CORPORA for row in corpora[name]["dev"]]
        voices = corpora["digits"]["train"]
        noise = make_noises(voices, NOISES, output / "noise", args.seed)
        write_manifests({"train": train, "dev": dev, "noise": noise}, output)
    except (RecipeError, OSError) as error:
        return refused("alnum", error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
