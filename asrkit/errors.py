"""The root of all errors that are the user's to mend, and how their messages show a value."""

import math
import reprlib
from numbers import Real
from pathlib import PurePath
from typing import Any

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


def reason(error: Exception, lines: int = 1) -> str:
    """The first lines of what a library's exception says, as one that a message may show."""
    said = [line.strip() for line in str(error).splitlines()[:lines]]
    return printable("; ".join(said)[: 3 * LONGEST]) or type(error).__name__


def printable(text: str) -> str:
    """The text with an escape for each character that acts on a terminal or cannot be seen.

    Control characters, line ends, the ones that turn the direction of writing, lone surrogates.
    """
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def whole_number(value: object, lowest: int, highest: float = math.inf) -> int | None:
    """The value as an int: also of 16000.0 and NumPy's numbers, not of True or "16".

    None for what is no whole number from `lowest` to `highest`: the caller says what is right.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    number: Any = value  # what a Real can do, no type says
    if not lowest <= number <= highest or number == math.inf or int(number) != number:
        return None
    return int(number)
