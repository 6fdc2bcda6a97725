"""Common Voice: sentences read by volunteers into their own microphones, MP3.

The splits are the corpus's own train, dev and test, without clips that listeners rejected. `spoken`
keeps the spoken part of a sentence. lhotse downloads and reads the corpus.
"""

import sys
import unicodedata
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpus import (
    JOBS,
    RecipeError,
    Splits,
    check_complete,
    command_line,
    explain,
    fetching,
    from_lhotse,
    parse,
    prepare,
)

URL = "https://mozilla-common-voice-datasets.s3.dualstack.us-west-2.amazonaws.com"
SPLITS = ["train", "dev", "test"]
COLUMNS = {"client_id", "path", "sentence", "gender", "age", "accents", "variant"}  # lhotse's
JOINERS = "'-\u200c\u200d"  # kept within words; the last two join letters in some scripts


def download(language: str, url: str, folder: Path) -> None:
    """Fetch the archive of a language; what was unpacked before is kept."""
    from lhotse.recipes.commonvoice import download_commonvoice

    at_last = "log in to https://mozilladatacollective.com, get it there and use --data-dir"
    with fetching(url, folder, at_last):
        download_commonvoice(folder, languages=language, base_url=url)


def read_original(language: str, found: Path, output: Path) -> Splits:
    """The utterances of a language; its MP3 files are used where they are."""
    from lhotse.recipes.commonvoice import prepare_commonvoice

    root = found.parents[1]
    expected = {split: count_clips(root / language / f"{split}.tsv") for split in SPLITS}
    output.mkdir(parents=True, exist_ok=True)
    damaged = "take what it names out of the tsv files, or get a whole copy of the corpus"
    with explain(f"cannot read {root / language}", damaged), TemporaryDirectory(dir=output) as own:
        found_by_lhotse = prepare_commonvoice(root, own, language, SPLITS, num_jobs=JOBS)[language]
        splits = {split: from_lhotse(found_by_lhotse[split]) for split in SPLITS}
    for split, rows in splits.items():
        check_complete(root / language / f"{split}.tsv", len(rows), expected[split])
        for row in rows:
            row["text"] = spoken(row["text"])
        splits[split] = [row for row in rows if row["text"]]
        if len(splits[split]) < len(rows):
            print(f"{split}: left out {len(rows) - len(splits[split])} texts without a letter")
    return splits


def count_clips(path: Path) -> int:
    """The number of clips in a list, which must have the columns that lhotse needs."""
    with explain(f"cannot read {path}", "get a whole copy of the corpus"):
        header, *lines = path.read_text(encoding="utf-8").split("\n")
    missing = COLUMNS - set(header.strip().split("\t"))
    if missing:
        names = ", ".join(sorted(missing))
        raise RecipeError(f"{path} has no column {names}: take a release from 13.0 on")
    return sum(1 for line in lines if line.strip())


def spoken(text: str) -> str:
    """A sentence without punctuation.

    Letters with their marks and digits are kept in composed form, in their case; apostrophes and
    hyphens are kept within a word, curly apostrophes as straight ones. Others become spaces.
    """
    text = unicodedata.normalize("NFC", text).replace("’", "'")
    kept = (c if unicodedata.category(c)[0] in "LMN" or c in JOINERS else " " for c in text)
    words = (word.strip("'-") for word in "".join(kept).split())
    return " ".join(word for word in words if word)


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare the corpus; returns the exit code."""
    example = "--output-dir data/commonvoice --language cy --data-dir cv-corpus-13.0-2023-03-09"
    parser = command_line("commonvoice", URL, example)
    parser.add_argument("--language", required=True, help="code of a language: en, cy, zh-TW, …")
    args = parse(parser, argv)
    marker = f"{args.language}/train.tsv"
    fetch, read = partial(download, args.language), partial(read_original, args.language)
    return prepare("commonvoice", args, marker, fetch, read, large=True)


if __name__ == "__main__":
    sys.exit(main())
