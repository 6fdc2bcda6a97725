"""LibriSpeech: English audiobooks, 16 kHz; also its first five hours, Mini LibriSpeech.

All train parts make one manifest and all dev parts another; each test part has its own, as their
error rates are reported one by one. lhotse fetches and reads the corpus.
"""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

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

URL = "http://www.openslr.org/resources"  # of the folders 12 and, for the mini parts, 31
MINI = ["train-clean-5", "dev-clean-2"]
FULL = [
    "train-clean-100",
    "train-clean-360",
    "train-other-500",
    "dev-clean",
    "dev-other",
    "test-clean",
    "test-other",
]


def download(parts: list[str], url: str, folder: Path) -> None:
    """Fetch the archives of some parts; those that were unpacked before are kept."""
    from lhotse.recipes import download_librispeech

    with fetching(url, folder):
        download_librispeech(folder, dataset_parts=parts, base_url=url)


def read_original(parts: list[str], found: Path, _output: Path) -> Splits:
    """The utterances of some parts; their FLAC files are used where they are."""
    from lhotse.recipes import prepare_librispeech

    root, splits = found.parent, Splits()
    for part in parts:
        if not (root / part).is_dir():
            raise RecipeError(f"{root} has no {part}: fetch it, or leave it out of --parts")
        with explain(f"cannot read {root / part}", "get a whole copy of the corpus"):
            transcripts = (root / part).rglob("*.trans.txt")
            expected = sum(len(path.read_bytes().splitlines()) for path in transcripts)
            rows = from_lhotse(prepare_librispeech(root, dataset_parts=part, num_jobs=JOBS)[part])
        check_complete(root / part, len(rows), expected)
        split = part if part.startswith("test") else part.partition("-")[0]
        splits.setdefault(split, []).extend(rows)
    return splits


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare the corpus; returns the exit code."""
    example = f"--output-dir data/librispeech5 --download --parts {' '.join(MINI)}"
    parser = command_line("librispeech", URL, example)
    about = f"some of {', '.join(MINI + FULL)}, or all for all but the first two (the first two)"
    parser.add_argument(
        "--parts", nargs="+", choices=["all", *MINI, *FULL], default=MINI, metavar="PART",
        help=about,
    )  # fmt: skip
    args = parse(parser, argv)
    parts = FULL if "all" in args.parts else list(dict.fromkeys(args.parts))
    fetch, read = partial(download, parts), partial(read_original, parts)
    return prepare("librispeech", args, parts[0], fetch, read)


if __name__ == "__main__":
    sys.exit(main())
