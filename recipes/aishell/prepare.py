"""AISHELL-1: Mandarin sentences read in a quiet room, 16 kHz.

The official split by speaker into train, dev and test. Texts are Chinese characters without
spaces; the few Latin letters become upper case and lose their full width. lhotse fetches and reads
the corpus.
"""

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpus import (
    Splits,
    check_complete,
    command_line,
    explain,
    fetching,
    from_lhotse,
    parse,
    prepare,
)

URL = "http://www.openslr.org/resources"  # of the folder 33
TRANSCRIPT = "data_aishell/transcript/aishell_transcript_v0.8.txt"


def download(url: str, folder: Path) -> None:
    """Fetch the recordings and the lexicon; what was unpacked before is kept."""
    from lhotse.recipes import download_aishell

    with fetching(url, folder):
        download_aishell(folder, base_url=url)


def read_original(found: Path, _output: Path) -> Splits:
    """The utterances of the unpacked archive; its wav files are used where they are."""
    from lhotse.recipes import prepare_aishell

    root = found.parents[2]
    hint = "unpack the archives in wav, or get a whole copy of the corpus"
    with explain(f"cannot read {found.parents[1]}", hint), no_warnings():
        expected = sum(1 for line in found.read_text(encoding="utf-8").split("\n") if line.strip())
        manifests = prepare_aishell(root)
        splits = {split: from_lhotse(manifests[split]) for split in ("train", "dev", "test")}
    check_complete(found.parents[1], sum(map(len, splits.values())), expected)
    return splits


@contextmanager
def no_warnings() -> Iterator[None]:
    """Silence lhotse, which warns twice of each of 300 recordings without a transcript."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare the corpus; returns the exit code."""
    args = parse(command_line("aishell", URL), argv)
    return prepare("aishell", args, TRANSCRIPT, download, read_original)


if __name__ == "__main__":
    sys.exit(main())
