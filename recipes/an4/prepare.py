"""CMU AN4: spelled letters, numbers and commands, 16 kHz, read over a close-talking microphone.

The official archive has a train and a test set. Eight whole speakers of train make the dev set, so
that no speaker of dev is in train.
"""

import re
import shutil
import sys
from functools import partial
from pathlib import Path

import soundfile

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpus import Splits, Utterance, audio_seconds, explain, prepare

DEV_SPEAKERS = frozenset(["fejs", "fkdo", "fplp", "mcel", "mjgk", "mmdg", "mrab", "mtos"])
# "<s> YES </s> (an251-fash-b)", in test without the markers
TRANSCRIPT = re.compile(r"(?:<s>)?\s*(.*?)\s*(?:</s>)?\s*\(([\w-]+)\)\s*")


def read_original(root: Path, output: Path) -> Splits:
    """Return the utterances of the unpacked archive; their audio becomes FLAC under `output`."""
    with explain(f"cannot read {root}", "get a whole copy of the corpus"):
        train, test = (read_part(root, part, output) for part in ("train", "test"))
        # The licence has to be kept with every copy of the recordings, also converted ones.
        for licence in root.glob("LICENSE*"):
            shutil.copy(licence, output / "audio")
    return {
        "train": [row for row in train if row["speaker"] not in DEV_SPEAKERS],
        "dev": [row for row in train if row["speaker"] in DEV_SPEAKERS],
        "test": test,
    }


def read_part(root: Path, part: str, output: Path) -> list[Utterance]:
    """Return an official part, "train" or "test", in the order of its list of files."""
    lists = root / "etc" / f"an4_{part}"
    lines = lists.with_suffix(".transcription").read_text(encoding="utf-8").splitlines()
    matches = filter(None, map(TRANSCRIPT.fullmatch, lines))
    texts = {match[2]: match[1] for match in matches}
    rows: list[Utterance] = []
    for file in lists.with_suffix(".fileids").read_text(encoding="utf-8").split():
        _, speaker, key = file.split("/")  # an4_clstk/fash/an251-fash-b
        audio = output / "audio" / speaker / f"{key}.flac"
        audio.parent.mkdir(parents=True, exist_ok=True)
        samples, rate = soundfile.read(root / "wav" / f"{file}.sph", dtype="int16")
        soundfile.write(audio, samples, rate, subtype="PCM_16")
        values = {"duration": audio_seconds(audio), "text": texts[key], "speaker": speaker}
        rows.append({"id": key, "audio": audio} | values)
    return rows


main = partial(prepare, "an4", "folder an4 of the unpacked archive", read_original)

if __name__ == "__main__":
    sys.exit(main())
