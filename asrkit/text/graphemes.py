"""Boundaries in a text: grapheme clusters, units, columns.

A unit is what a text is scored, cut and counted by: a word, or in scripts without spaces a
character with its combining marks and its punctuation.

Clusters are those of Unicode (UAX 29), longer in some scripts. Units follow UAX 14 by categories
and a few ranges.
"""

import functools
import re
import unicodedata

import regex

# Scripts without spaces between words, with their punctuation and without their digits
UNSPACED = regex.compile(
    r"(?!\p{Nd})[\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Yi}\p{Tangut}\p{Nushu}"
    r"\p{Khitan_Small_Script}\u3001-\u30ff\uff01-\uff60"
    r"\p{Thai}\p{Lao}\p{Tibetan}\p{Myanmar}\p{Khmer}\p{Tai_Le}\p{New_Tai_Lue}\p{Tai_Tham}\p{Tai_Viet}"
    r"\p{Balinese}\p{Buginese}\p{Javanese}\p{Cham}\p{Ahom}]"
)
SPACES = regex.compile(rf"(?<={UNSPACED.pattern})\s+(?={UNSPACED.pattern})")
BETWEEN_IDEOGRAPHS = re.compile("(?<=[\u4e00-\u9fff])(?=[\u4e00-\u9fff])")  # is quick to find
CLUSTER = regex.compile(  # with a vowel before it, every mark, and the letter after a virama
    r"(?:\p{Logical_Order_Exception}(?=\p{Lo}))*+\X(?:(?:(?=\p{M})|(?<=\p{ccc=9})(?=\p{Lo}))\X)*+"
)
OPENING = regex.compile(r"[\p{Ps}\p{Pi}]")
NO_START = regex.compile(  # closing marks, small kana, and signs that cannot begin a line
    r"[\p{Pe}\p{Pf}\p{Po}\p{Pd}\p{Sk}\p{Line_Break=CJ}\p{Line_Break=NS}\u0e2f\u0e46\u0eaf\u0ec6\u17d7]"
)
LONGEST = 64  # characters of a cluster, so that the time does not grow with the square of a unit


@functools.lru_cache(maxsize=1 << 14)  # texts of a stream are divided again with each chunk
def divides_units(before: str, after: str) -> bool:
    """Return whether a unit ends and another begins between two texts without a space.

    In scripts with spaces a word is a unit. In other scripts a unit is a cluster with its
    punctuation, so a line may end after each unit.
    """
    text = before[-LONGEST:] + after[0]
    if not UNSPACED.search(text):
        return False
    *_, last, first = ["", *clusters(text)]
    if first != after[0] or not (UNSPACED.match(last) or UNSPACED.match(first)):
        return False
    return not (OPENING.match(last) or NO_START.match(first))


def units(text: str) -> list[str]:
    """Return the units of a text."""
    return [unit.strip() for unit in spaced_units(text)]


def spaced_units(text: str) -> list[str]:
    """Return the units of a text, with a space before each that begins a word."""
    found: list[str] = []
    for word in text.split():
        parts = BETWEEN_IDEOGRAPHS.split(word) if UNSPACED.search(word) else []
        first, *more = [unit for part in parts for unit in divided(part)] or [word]
        found += [f" {first}", *more]
    return found


@functools.lru_cache(maxsize=1 << 16)
def complete_units(text: str) -> tuple[tuple[str, ...], str]:
    """Return the units that more text cannot extend, and the last one, "" after a space."""
    found = units(text)
    last = found.pop() if found and not text[-1].isspace() else ""
    return tuple(found), last


def is_character(unit: str) -> bool:
    """Return whether a unit is a character of a script without spaces, and not a word."""
    return any(letter.isalnum() and UNSPACED.match(letter) for letter in unit)


def in_one_line(text: str) -> str:
    """Return a text in one line, with single spaces.

    A line end is a space, but not between characters of scripts without spaces.
    """
    return " ".join(SPACES.sub(lambda found: "" if "\n" in found[0] else " ", text).split())


def clusters(text: str) -> list[str]:
    """Return the grapheme clusters of a text."""
    return CLUSTER.findall(text)


def divided(word: str) -> list[str]:
    """Return the units of a word."""
    found: list[str] = []
    for letter in word:
        if found and not divides_units(found[-1], letter):
            found[-1] += letter
        else:
            found.append(letter)
    return found


def columns(text: str) -> int:
    """Return the width of a text in columns: letters such as Chinese have two, marks none."""
    return sum(
        2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
        if unicodedata.category(letter) not in ("Mn", "Me", "Cf", "Cc")
    )
