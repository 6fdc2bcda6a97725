"""Lines of text files, which may be gzipped, in UTF-8 or in UTF-16 with a byte order mark."""

import codecs
import gzip
import io
import math
import zlib
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

from asrkit.errors import UserError, shown

GZIP = b"\x1f\x8b"
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class LineKind(NamedTuple):
    """A kind of text file, with its error and its limits."""

    name: str  # "a manifest", for messages
    error: type[UserError]  # raised for a file that cannot be read
    longest: int  # largest number of bytes of a line, or characters in UTF-16


def lines_in(file: BinaryIO, name: str, kind: LineKind) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of an open file that are not empty, in UTF-8, with their numbers from 1.

    A byte order mark is removed. A file is unpacked if it is named .gz or begins like gzip.

    Raises:
        kind.error: for a damaged file, another encoding, or lines beyond the limits.
    """
    number = 0

    def refuse(problem: str) -> NoReturn:
        raise kind.error(f"{name}:{number}: {problem}")

    try:
        raw: Any = file  # BufferedReader only needs readinto, and closes the file at the end
        stream: Any = io.BufferedReader(raw)
        if name.endswith(".gz") or stream.peek(2).startswith(GZIP):
            stream = io.BufferedReader(gzip.GzipFile(fileobj=stream))
        if stream.peek(3).startswith(codecs.BOM_UTF8):
            stream.read(len(codecs.BOM_UTF8))
        elif stream.peek(2).startswith(UTF_16):
            stream = io.TextIOWrapper(stream, "utf-16", newline="\n")
        for number in count(1):
            line = stream.readline(kind.longest + 1)
            if len(line) > kind.longest:
                refuse(f"a line of more than {kind.longest} bytes: not {kind.name}")
            if not line:
                return
            if isinstance(line, str):
                line = line.encode()
            elif number == 1 and b"\0" in line[:4]:
                refuse("not UTF-8: convert the file, for example with iconv -f UTF-16 -t UTF-8")
            if line.strip():
                yield number, line
    except (gzip.BadGzipFile, EOFError, zlib.error, UnicodeError) as error:
        raise kind.error(f"{name} is not a gzipped file, or damaged: {error}") from None


def text_lines(path: Path, kind: LineKind, most: float = math.inf) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file like `lines_in`, as text without line ends.

    Raises:
        kind.error: for a file that is not text, or has more than `most` bytes in such lines.
    """
    size = 0
    with path.open("rb") as file:
        for number, line in lines_in(file, str(path), kind):
            if (size := size + len(line)) > most:
                raise kind.error(f"{shown(path)}: {kind.name} must have at most {most:.0f} bytes")
            try:
                text = line.decode()
            except UnicodeDecodeError:
                raise kind.error(
                    f"{path}:{number}: not UTF-8: convert the file, for example with iconv "
                    "-f WINDOWS-1252 -t UTF-8"
                ) from None
            if text.strip():  # also without spaces that are not ASCII
                yield number, text.rstrip("\r\n")
