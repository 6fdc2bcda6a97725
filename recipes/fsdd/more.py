"""More voices for fsdd: utterances of other corpora whose words are all digits."""

import sys
from pathlib import Path

import soundfile
import soxr

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpus import RecipeError, Splits, Utterance, explain, read_prepared

RATE = 8000  # of fsdd
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
SPOKEN = {*WORDS, "oh"}


def add_digits(folders: list[Path], limit: int, output: Path, splits: Splits) -> Splits:
    """The splits, with more utterances in train.

    Args:
        folders: prepared corpora.
        limit: most utterances of each, evenly spread over its train.
        output: folder for their audio, at RATE.
        splits: splits of fsdd.
    """
    train = list(splits["train"])
    for folder in folders:
        if not (folder / "train.jsonl").is_file():
            raise RecipeError(f"--more {folder}: it has no train.jsonl; prepare that corpus first")
        rows = [
            row for row in read_prepared(folder)["train"]
            if SPOKEN.issuperset(row["text"].lower().split())
        ]  # fmt: skip
        if not rows:
            raise RecipeError(f"--more {folder}: none of its texts consists of digits alone")
        step = max(1, -(-len(rows) // limit))
        train += [at_rate(row, folder.name, output) for row in rows[::step]]
    return splits | {"train": train}


def at_rate(row: Utterance, corpus: str, output: Path) -> Utterance:
    """An utterance in the format of fsdd: audio at RATE, text in lower case."""
    with explain(f"cannot read audio file {row['audio']}", "get a whole copy of the corpus"):
        samples, rate = soundfile.read(row["audio"])
    samples = soxr.resample(samples, rate, RATE)
    path = output / corpus / f"{row['id']}.flac"
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, RATE, subtype="PCM_16")
    return {
        "id": f"{corpus}-{row['id']}",
        "audio": path,
        "duration": len(samples) / RATE,
        "text": row["text"].lower(),
        "speaker": f"{corpus}-{row['speaker']}",
    }
