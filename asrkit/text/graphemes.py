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

# Scripts without spaces between words. Each character of the first line is a unit.
IDEOGRAPHIC = (
    "\u2e80-\u2fdf\u3001-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u33ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua000-\ua4cf\uf900-\ufaff\ufe30-\ufe4f\uff01-\uff60\uff66-\uff9f"
    "\U00016fe0-\U00018dff\U0001aff0-\U0001b2ff\U0001f200-\U0001f2ff\U00020000-\U0003fffd"
)
COMPLEX = (  # Thai, Lao, Tibetan, Myanmar, Khmer, Tai scripts, Balinese, Javanese, Ahom, …
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e80-\u0ecd\u0edc-\u0edf\u0f00-\u0fff\u1000-\u1049\u1050-\u109f"
    "\u1780-\u17d3\u17d7\u17dc\u17dd\u1950-\u19df\u1a00-\u1aad\u1b00-\u1b4c\ua980-\ua9c0"
    "\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa00-\uaa4d\uaa60-\uaadf\U00011700-\U0001172b"
)
UNSPACED = re.compile(f"[{IDEOGRAPHIC}{COMPLEX}]")
SPACES = re.compile(rf"(?<={UNSPACED.pattern})\s+(?={UNSPACED.pattern})")
BETWEEN_IDEOGRAPHS = re.compile("(?<=[\u4e00-\u9fff])(?=[\u4e00-\u9fff])")  # is quick to find
BEFORE_ITS_CONSONANT = (
    "[\u0e40-\u0e44\u0ec0-\u0ec4\u19b5-\u19b7\u19ba\uaab5\uaab6\uaab9\uaabb\uaabc]"
)
CLUSTER = regex.compile(  # with every mark, and the letter after a virama (class 9)
    rf"(?:{BEFORE_ITS_CONSONANT}(?=\p{{Lo}}))*+\X"
    r"(?:(?:(?=\p{M})|(?<=\p{ccc=9})(?=\p{Lo}))\X)*+"
)
OPENING = regex.compile(r"[\p{Ps}\p{Pi}]")
NO_START = regex.compile(  # closing marks, small kana, and signs that cannot begin a line
    r"[\p{Pe}\p{Pf}\p{Po}\p{Pd}\p{Sk}"
    "\u3005\u301c\u303b\u3041\u3043\u3045\u3047\u3049\u3063\u3083\u3085\u3087\u308e\u3095\u3096"
    "\u309b-\u309e\u30a0\u30a1\u30a3\u30a5\u30a7\u30a9\u30c3\u30e3\u30e5\u30e7\u30ee\u30f5\u30f6"
    "\u30fb-\u30fe\u31f0-\u31ff\uff67-\uff70\u0e2f\u0e46\u0eaf\u0ec6\u17d7]"
)
LONGEST = 64  # characters of a cluster, so that the time does not grow with the square of a unit
EMOJI_STYLE = "\ufe0f"
REGIONAL = re.compile("[\U0001f1e6-\U0001f1ff]")


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


@functools.lru_cache(maxsize=4096)
def columns(text: str) -> int:
    """Return the width of a text in columns: wide clusters such as Chinese and emoji have two."""
    return sum(map(_columns, clusters(text)))


def _columns(cluster: str) -> int:
    wide = any(unicodedata.east_asian_width(letter) in "WF" for letter in cluster)
    if wide or EMOJI_STYLE in cluster or REGIONAL.match(cluster):
        return 2
    return sum(unicodedata.category(letter) not in ("Mn", "Me", "Cf", "Cc") for letter in cluster)
