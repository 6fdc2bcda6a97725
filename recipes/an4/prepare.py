"""CMU AN4: spelled letters, numbers and commands, 16 kHz, read over a close-talking microphone.

The official archive has a train and a test set. Eight whole speakers of train make the dev set, so
that no speaker of dev is in train.
"""

import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpus import RecipeError, Splits, Utterance, audio_seconds, explain, run

URL = "http://www.speech.cs.cmu.edu/databases/an4/an4_sphere.tar.gz"
DEV_SPEAKERS = frozenset(["fejs", "fkdo", "fplp", "mcel", "mjgk", "mmdg", "mrab", "mtos"])
SAMPLE_RATE = 16000
# "<s> YES </s> (an251-fash-b)", in test without the markers; "an4_clstk/fash/an251-fash-b".
TRANSCRIPT = re.compile(r"(?:<s>)?\s*(.*?)\s*(?:</s>)?\s*\(([\w-]+)\)")
FILE_ID = re.compile(r"\w+/(\w+)/([\w-]+)")


def read_original(found: Path, output: Path) -> Splits:
    """The utterances of the unpacked archive; their audio becomes FLAC under `output`."""
    root = found.parents[1]
    # The licence has to be kept with every copy of the recordings, also converted ones.
    for licence in root.glob("LICENSE*"):
        (output / "audio").mkdir(parents=True, exist_ok=True)
        shutil.copy(licence, output / "audio")
    train = read_part(root, "train", output)
    return {
        "train": [row for row in train if row["speaker"] not in DEV_SPEAKERS],
        "dev": [row for row in train if row["speaker"] in DEV_SPEAKERS],
        "test": read_part(root, "test", output),
    }


def read_part(root: Path, part: str, output: Path) -> list[Utterance]:
    """Return an official part, "train" or "test", in the order of its list of files."""
    texts = read_transcripts(root / "etc" / f"an4_{part}.transcription")
    rows: list[Utterance] = []
    list_path = root / "etc" / f"an4_{part}.fileids"
    for file_id in read_lines(list_path):
        match = FILE_ID.fullmatch(file_id)
        if not match:
            raise RecipeError(f"{list_path}: {file_id!r} should be like an4_clstk/fash/an1-fash-b")
        speaker, key = match.groups()
        if key not in texts:
            raise RecipeError(f"{list_path}: {key} has no line in an4_{part}.transcription: add it")
        audio = output / "audio" / speaker / f"{key}.flac"
        convert(root / "wav" / file_id, audio)
        rows.append(
            {
                "id": key,
                "audio": audio,
                "duration": audio_seconds(audio),
                "text": texts[key],
                "speaker": speaker,
            }
        )
    return rows


def read_transcripts(path: Path) -> dict[str, str]:
    """Text by utterance id, without the markers of sentence start and end."""
    texts: dict[str, str] = {}
    for line in read_lines(path):
        match = TRANSCRIPT.fullmatch(line)
        if not match:
            raise RecipeError(f"{path}: {line!r} should look like '<s> YES </s> (an251-fash-b)'")
        texts[match[2]] = match[1]
    return texts


def read_lines(path: Path) -> list[str]:
    """The lines of a text file that are not blank."""
    with explain(f"cannot read {path}", "get a whole copy of the corpus"):
        lines = path.read_text(encoding="utf-8").split("\n")
        return [line.strip() for line in lines if line.strip()]


def convert(stem: Path, target: Path) -> None:
    """Write the recording `stem`.sph or `stem`.raw as FLAC, the samples unchanged."""
    raw, sphere = stem.with_name(f"{stem.name}.raw"), stem.with_name(f"{stem.name}.sph")
    with explain(f"cannot convert {sphere}", "get a whole copy of the corpus"):
        if raw.is_file():
            samples, sample_rate = read_raw(raw), SAMPLE_RATE
        else:
            samples, sample_rate = soundfile.read(sphere, dtype="int16")
        if sample_rate != SAMPLE_RATE or samples.ndim != 1:
            raise ValueError(f"{sample_rate} Hz, shape {samples.shape}; should be 16000 Hz, mono")
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f"{target.name}.part")
        soundfile.write(partial, samples, sample_rate, subtype="PCM_16", format="FLAC")
        os.replace(partial, target)


def read_raw(path: Path) -> np.ndarray:
    """Samples of a file without a header, in either byte order.

    The archives an4_raw.bigendian and an4_raw.littleendian have the same names. In the wrong order,
    neighbouring samples differ by hundreds rather than by little.
    """
    orders = (np.fromfile(path, dtype=order).astype(np.int32) for order in (">i2", "<i2"))
    return min(orders, key=lambda samples: np.abs(np.diff(samples)).sum()).astype(np.int16)


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare the corpus; returns the exit code."""
    return run("an4", URL, "etc/an4_train.transcription", read_original, argv)


if __name__ == "__main__":
    sys.exit(main())
