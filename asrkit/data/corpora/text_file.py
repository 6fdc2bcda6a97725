"""Small text files beside the audio: transcripts and lists."""

from collections.abc import Iterator
from pathlib import Path

from asrkit import lines
from asrkit.data.corpora.entry import CorpusError

LONGEST_LINE = 1 << 20  # bytes
MOST_EMPTY = 10_000
TEXT = lines.LineKind("a text", CorpusError, LONGEST_LINE, MOST_EMPTY)


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file that are not empty, with their numbers from 1.

    Raises:
        CorpusError: for a file that is not text, or beyond the limits.
    """
    with path.open("rb") as file:
        for number, line in lines.lines_in(file, str(path), TEXT):
            try:
                yield number, line.decode().rstrip("\r\n")
            except UnicodeDecodeError:
                raise CorpusError(
                    f"{path}:{number}: not UTF-8: convert the file, for example with iconv "
                    "-f WINDOWS-1252 -t UTF-8"
                ) from None
