"""The base class of errors that users can correct, and formatting values in their messages."""

import math
import re
import reprlib
import unicodedata
from numbers import Real
from pathlib import Path, PurePath
from typing import Any

DIRECTIONS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # change the direction
LONGEST = 100  # characters of a value in a message
URL = re.compile(r"(^|/)([a-z0-9]{2,8}):/(?!/)")  # the start of a URL in a Path: one slash is lost


class UserError(ValueError):
    """A user's mistake: the message has the wrong value and what would be right.

    Commands print the message without a traceback and exit with status 2.
    """


def shown(value: object, longest: int = LONGEST) -> str:
    """Return a value's repr for a message: one line, printable, of at most `longest` characters.

    Paths have no quotes, and a URL in a path has both its slashes. The middle of long values and
    the depths of nested ones are left out, so the cost does not grow with the value.
    """
    if isinstance(value, PurePath):
        text = printable(URL.sub(r"\1\2://", str(value)))
    else:
        short = reprlib.Repr()
        short.maxlevel = 3
        # Twice the length: the cut below then also removes the mark "..." of Python 3.10.
        short.maxstring = short.maxother = short.maxlong = 2 * longest
        short.fillvalue = "…"  # Python 3.10 ignores it
        try:
            text = printable(short.repr(value))  # some reprs have several lines
        except ValueError:  # an int with more digits than Python converts
            text = f"{type(value).__name__} of too many digits"
    if len(text) <= longest:
        return text
    half = (longest - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def reason(error: Exception, lines: int = 1) -> str:
    """Return the first lines of a library's error message as one printable line, cut if long."""
    first = [line.strip() for line in str(error).splitlines()[:lines]]
    return printable("; ".join(first)[: 3 * LONGEST]) or type(error).__name__


def printable(text: str) -> str:
    """Return the text with escapes for characters that are invisible or control a terminal.

    These are control characters, line ends, marks of writing direction and lone surrogates.
    """
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def no_file(path: Path) -> str:
    """Return why a path names no file."""
    if path.exists():
        return "is a folder: name a file in it" if path.is_dir() else "is not a file"
    if URL.search(str(path)):
        return "is a URL, but asrkit reads files: download it and name the path of the file"
    return "does not exist"


def harmless(text: str) -> str:
    """Return the text with escapes for characters that control a terminal or change its direction.

    Unlike `printable`, joiners and spaces of all kinds, which scripts need, are kept.
    """
    return "".join(repr(each)[1:-1] if acts(each) else each for each in text)


def acts(letter: str) -> bool:
    """Return whether a character is a control character, line end, direction or surrogate."""
    return unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") or letter in DIRECTIONS


def whole_number(value: object, lowest: int, highest: float = math.inf) -> int | None:
    """Return the value as an int; None unless it is a whole number from `lowest` to `highest`.

    16000.0 and NumPy's numbers are whole numbers, True and "16" are not.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    number: Any = value  # Real declares none of the operations below
    if not lowest <= number <= highest or number == math.inf or int(number) != number:
        return None
    return int(number)


def checked_whole(name: str, value: object) -> int:
    """Return a value as an int of at least 1. An error begins with `name`."""
    whole = whole_number(value, 1)
    if whole is None:
        raise UserError(f"{name} must be a whole number of at least 1, got {shown(value)}")
    return whole


def checked_token(token: str) -> str:
    """Return an access token, which a header must be able to carry.

    Raises:
        UserError: for a token with other characters. Its message does not have the token.
    """
    if not re.fullmatch(r"[!-~]+", token):
        raise UserError("the token must be one or more visible ASCII characters without spaces")
    return token
