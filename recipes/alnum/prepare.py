"""alnum: an4, fsdd and digits as one corpus of letters, numbers and commands in lower case.

It also has strings of digits, joined from single digits of one fsdd speaker. Users speak strings,
and a model that was trained on single digits of half a second recognises them badly. The corpus
also has noises for augmentation, because all three corpora were recorded in quiet rooms.
"""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import soundfile

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpus import RecipeError, Splits, Utterance, explain, prepare, read_prepared

sys.path.insert(0, str(Path(__file__).resolve().parent))
from noise import make_noises

CORPORA = {"an4": 2, "fsdd": 1, "digits": 1}  # repetitions in an epoch
NOISES, STRINGS = 30, 1000
LONGEST = 7  # digits in a string
BETWEEN, AROUND = (0.02, 0.3), (0.1, 0.5)  # seconds of pause: shortest, longest


def read_corpora(folder: Path, output: Path) -> Splits:
    """Return the utterances of the prepared corpora of a folder, with strings and noises."""
    train: dict[str, list[Utterance]] = {}
    dev: list[Utterance] = []
    for name in CORPORA:
        if not (folder / name / "train.jsonl").is_file():
            raise RecipeError(f"{folder / name} is not prepared: run recipes/{name}/prepare.py")
        train[name], more = (
            read_lower(folder / name / f"{part}.jsonl") for part in ("train", "dev")
        )
        dev += more
    rows = [row for name, times in CORPORA.items() for row in repeated(train[name], times)]
    rows += make_strings(train["fsdd"], output / "audio")
    noise = make_noises(train["digits"], NOISES, output / "noise")
    return {"train": rows, "dev": dev, "noise": noise}


def read_lower(path: Path) -> list[Utterance]:
    """Return the utterances of a manifest, with their texts in lower case."""
    return [row | {"text": row["text"].lower()} for row in read_prepared(path)]


def repeated(rows: list[Utterance], times: int) -> list[Utterance]:
    """Return the utterances `times` times; the repetitions have ids of their own."""
    again = [row | {"id": f"{row['id']}-{n}"} for n in range(2, times + 1) for row in rows]
    return rows + again


def make_strings(rows: list[Utterance], folder: Path) -> list[Utterance]:
    """Return STRINGS strings of digits, each of one speaker's recordings.

    Args:
        rows: recordings of one digit each.
        folder: folder of the strings' audio.
    """
    folder.mkdir(parents=True, exist_ok=True)
    speakers = sorted({row["speaker"] for row in rows})
    strings: list[Utterance] = []
    for index in range(STRINGS):
        rng = np.random.default_rng([0, index])
        speaker = rng.choice(speakers)
        own = [row for row in rows if row["speaker"] == speaker]
        chosen = [own[i] for i in rng.integers(len(own), size=rng.integers(1, LONGEST + 1))]
        digits, rate = read_digits([row["audio"] for row in chosen])
        samples = join(digits, rate, rng)
        path = folder / f"string-{index:05d}.flac"
        soundfile.write(path, samples, rate, subtype="PCM_16")
        text = " ".join(row["text"] for row in chosen)
        row = {"id": path.stem, "audio": path, "duration": len(samples) / rate, "text": text}
        strings.append(row | {"speaker": speaker})
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


main = partial(prepare, "alnum", "folder with an4, fsdd and digits", read_corpora)

if __name__ == "__main__":
    sys.exit(main())
