"""Small text files beside the audio: transcripts and lists."""

from collections.abc import Iterator
from pathlib import Path

from asrkit import lines
from asrkit.data.corpora.entry import CorpusError, Omitted
from asrkit.errors import reason

LONGEST_LINE = 1 << 20  # bytes
LONGEST_TEXT = 1 << 20  # bytes of a whole transcript
MOST_EMPTY = 10_000
UNREADABLE = "text that cannot be read"
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


def read_lines(path: Path, omitted: Omitted) -> list[str] | None:
    """Return the lines of a small text file; None, with a reason in `omitted`, if unreadable."""
    found, size = [], 0
    try:
        for _, line in lines_of(path):
            size += len(line)
            if size > LONGEST_TEXT:
                raise CorpusError(f"{path}: a text of more than {LONGEST_TEXT} characters")
            found.append(line)
    except CorpusError as error:
        omitted.add(UNREADABLE, error)
        return None
    except OSError as error:
        omitted.add(UNREADABLE, f"{path}: {error.strerror or reason(error)}")
        return None
    return found


def read_text(path: Path, omitted: Omitted) -> str | None:
    """Return the text of a small file in one line; None, with a reason, if unreadable."""
    found = read_lines(path, omitted)
    return None if found is None else " ".join(" ".join(found).split())
