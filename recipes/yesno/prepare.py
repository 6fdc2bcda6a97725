"""YesNo: eight times yes or no in Hebrew, by one man, 8 kHz; sixty recordings.

lhotse fetches and reads the corpus, and takes every other recording to test. There being no dev
set, the last four of train are it.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpus import (
    RecipeError,
    Splits,
    command_line,
    explain,
    fetching,
    from_lhotse,
    parse,
    prepare,
)

URL = "http://www.openslr.org/resources/1/waves_yesno.tar.gz"
COUNT, DEV_COUNT = 60, 4
FILE_NAME = re.compile("[01](_[01]){7}")  # a word each: yes is 1


def download(url: str, folder: Path) -> None:
    """Fetch the archive; what was unpacked before is kept."""
    from lhotse.recipes import download_yesno

    with fetching(url, folder):
        download_yesno(folder, url=url)


def read_original(found: Path, _output: Path) -> Splits:
    """The utterances of the unpacked archive; its wav files are used where they are."""
    from lhotse.recipes import prepare_yesno

    root, names = found.parent, [path.stem for path in sorted(found.parent.glob("*.wav"))]
    for name in names:
        if not FILE_NAME.fullmatch(name):
            raise RecipeError(f"{root / name}.wav: the name should be like 0_1_1_0_0_1_1_0.wav")
    if len(names) != COUNT:
        raise RecipeError(f"{root} has {len(names)} wav files, not {COUNT}: get a whole copy")
    with explain(f"cannot read {root}", "get a whole copy of the corpus"):
        manifests = prepare_yesno(root)
        train, test = from_lhotse(manifests["train"]), from_lhotse(manifests["test"])
    return {"train": train[:-DEV_COUNT], "dev": train[-DEV_COUNT:], "test": test}


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare the corpus; returns the exit code."""
    args = parse(command_line("yesno", URL), argv)
    return prepare("yesno", args, "*.wav", download, read_original)


if __name__ == "__main__":
    sys.exit(main())
