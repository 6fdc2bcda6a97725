"""The root of all errors that are the user's to mend, and how their messages show a value."""

import reprlib
from pathlib import PurePath

LONGEST = 100  # characters of a value in a message


class UserError(ValueError):
    """Names what was wrong, the value, and what would be right; commands print it as one line."""


def shown(value: object, longest: int = LONGEST) -> str:
    """A value as a message shows it: one line, at most `longest` characters, all of them printable.

    As repr gives it, so that '16' differs from 16; a path without quotes. What is longer loses its
    middle, and what is nested deeply its depths: cost does not grow with the value.
    """
    if isinstance(value, PurePath):
        text = printable(str(value))
    else:
        short = reprlib.Repr()
        short.maxlevel = 3
        short.maxstring = short.maxother = short.maxlong = longest
        short.fillvalue = "…"
        try:
            text = printable(short.repr(value))  # some classes' own repr is of several lines
        except ValueError:  # an int with more digits than Python writes
            text = f"{type(value).__name__} of too many digits"
    if len(text) <= longest:
        return text
    half = (longest - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def printable(text: str) -> str:
    """The text with an escape for each character that acts on a terminal or cannot be seen.

    Control characters, line ends, the ones that turn the direction of writing, lone surrogates.
    """
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
