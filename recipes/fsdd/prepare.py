"""Free Spoken Digit Dataset: single English digits, 8 kHz.

The official split depends on the index of a recording: 0 to 4 are test, 5 to 49 are train. This
recipe takes 5 to 9 as dev. The speakers are the same in all three.
"""

import re
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpus import RecipeError, Splits, audio_seconds, prepare

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
FIRST_INDEX = {"train": 10, "dev": 5, "test": 0}  # of each split, from the highest down
FILE_NAME = re.compile(r"([0-9])_([A-Za-z]+)_([1-4]?[0-9])")  # digit, speaker, index 0 to 49


def read_original(folder: Path, _output: Path) -> Splits:
    """Return the utterances of the original; its wav files are used where they are."""
    splits: Splits = {split: [] for split in FIRST_INDEX}
    for audio in sorted(folder.glob("recordings/*.wav"), key=lambda path: path.stem):
        match = FILE_NAME.fullmatch(audio.stem)
        if not match:
            raise RecipeError(f"{audio}: the name should be DIGIT_SPEAKER_INDEX.wav, index 0 to 49")
        digit, speaker, index = match.groups()
        split = next(name for name, first in FIRST_INDEX.items() if int(index) >= first)
        values = {"text": WORDS[int(digit)], "speaker": speaker}
        row = {"id": audio.stem, "audio": audio, "duration": audio_seconds(audio)}
        splits[split].append(row | values)
    return splits


main = partial(prepare, "fsdd", "folder of the original, which has recordings/", read_original)

if __name__ == "__main__":
    sys.exit(main())
