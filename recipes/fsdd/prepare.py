"""Free Spoken Digit Dataset: single English digits, 8 kHz.

The official split depends on the index of a recording: 0 to 4 are test, 5 to 49 are train. This
recipe takes 5 to 9 as dev. The speakers are the same in all three, unless one is left out.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpus import (
    RecipeError,
    Splits,
    audio_seconds,
    command_line,
    fetch_and_unpack,
    parse,
    prepare,
)

sys.path.insert(0, str(Path(__file__).resolve().parent))
from more import WORDS, add_digits

URL = "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/heads/master.zip"
FIRST_INDEX = {"train": 10, "dev": 5, "test": 0}  # of each split, from the highest down
FILE_NAME = re.compile(r"([0-9])_([A-Za-z]+)_([1-4]?[0-9])")  # digit, speaker, index 0 to 49


def read_original(recordings: Path, _output: Path) -> Splits:
    """The utterances of the unpacked archive; its wav files are used where they are."""
    splits: Splits = {split: [] for split in FIRST_INDEX}
    for audio in sorted(recordings.glob("*.wav"), key=lambda path: path.stem):
        match = FILE_NAME.fullmatch(audio.stem)
        if not match:
            raise RecipeError(f"{audio}: the name should be DIGIT_SPEAKER_INDEX.wav, index 0 to 49")
        digit, speaker, index = match.groups()
        split = next(name for name, first in FIRST_INDEX.items() if int(index) >= first)
        splits[split].append(
            {
                "id": audio.stem,
                "audio": audio,
                "duration": audio_seconds(audio),
                "text": WORDS[int(digit)],
                "speaker": speaker,
            }
        )
    return splits


def leave_out(speaker: str, splits: Splits) -> Splits:
    """Train and dev of the other speakers; test has all utterances of this one."""
    rows = [row for split in splits.values() for row in split]
    speakers = sorted({row["speaker"] for row in rows})
    if speaker not in speakers:
        raise RecipeError(f"--leave-out {speaker}: the speakers are {', '.join(speakers)}")
    others = {
        name: [row for row in splits[name] if row["speaker"] != speaker]
        for name in ("train", "dev")
    }
    return others | {"test": [row for row in rows if row["speaker"] == speaker]}


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare the corpus; returns the exit code."""
    parser = command_line("fsdd", URL)
    parser.add_argument(
        "--leave-out", metavar="SPEAKER", help="test on this speaker, train on the others"
    )
    parser.add_argument(
        "--more", type=Path, nargs="+", default=[], metavar="DIR",
        help="prepared corpora: train on what they have of nothing but digits, too",
    )  # fmt: skip
    parser.add_argument(
        "--more-limit", type=int, default=400, metavar="N", help="utterances of each (%(default)s)"
    )
    args = parse(parser, argv)

    def arrange(splits: Splits) -> Splits:
        if args.leave_out:
            splits = leave_out(args.leave_out, splits)
        return add_digits(args.more, args.more_limit, args.output_dir.resolve() / "more", splits)

    return prepare("fsdd", args, "recordings", fetch_and_unpack, read_original, arrange=arrange)


if __name__ == "__main__":
    sys.exit(main())
