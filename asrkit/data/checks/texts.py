"""Checks of one text: characters and marks that are not spoken, or that only look alike.

A transcript becomes labels without changes. Characters that are not spoken are therefore learned as
noise, and count as errors in each score.
"""

from collections.abc import Callable, Iterable

import regex

from asrkit.data.checks.facts import Facts, Rules, UtteranceCheck
from asrkit.errors import shown
from asrkit.text.marks import MISREAD, marks_in, reread

EXAMPLES = 3  # marks of a text in a message
LATIN, OTHER = r"\p{Latin}", r"[\p{Cyrillic}\p{Greek}]"  # alphabets with letters that look alike
MIXED = regex.compile(rf"\b(?=\w*{LATIN})(?=\w*{OTHER})\w+")


def named(marks: Iterable[str], text: str) -> str:
    """Format the first different marks and the text, for a message."""
    several = list(dict.fromkeys(marks))
    more = ", …" if len(several) > EXAMPLES else ""
    return f"{', '.join(map(shown, several[:EXAMPLES]))}{more} in {shown(text)}"


def marks_of(kind: str) -> Callable[[Facts, Rules], str | None]:
    """Return the function that finds the marks of a kind."""

    def find(facts: Facts, rules: Rules) -> str | None:
        marks = marks_in(facts.text).get(kind)
        return named(marks, facts.text) if marks else None

    return find


def wrong_encoding(facts: Facts, rules: Rules) -> str | None:
    """Find UTF-8 that was read as Latin-1 or Windows-1252, such as "GrÃ¼n" and "donâ€™t"."""
    for run in MISREAD.findall(facts.text):
        if meant := reread(run):
            return f"{shown(run)} for {shown(meant)} in {shown(facts.text)}"
    return None


def mixed_alphabets(facts: Facts, rules: Rules) -> str | None:
    """Find words with letters of two alphabets, such as a Cyrillic "Е" in "SЕVEN"."""
    if word := MIXED.search(facts.text):
        latin, other = (regex.findall(alphabet, word[0]) for alphabet in (LATIN, OTHER))
        return named(latin if len(latin) < len(other) else other, word[0])
    return None


TEXT_CHECKS: list[UtteranceCheck] = [
    UtteranceCheck("markup", "warning", "entities or tags of a file format",
        marks_of("markup"), "asrkit data normalize decodes entities and removes tags"),
    UtteranceCheck("address", "warning", "addresses of the web, of mail or of people",
        marks_of("address"), "write the words that are spoken: example dot com"),
    UtteranceCheck("annotation", "warning", "brackets, tags of sounds, marked fillers",
        marks_of("annotation"),
        "asrkit data normalize removes them; remove lines with unknown words"),
    UtteranceCheck("emoji", "warning", "emoji and smileys", marks_of("emoji"),
        "asrkit data normalize removes them"),
    UtteranceCheck("digits", "warning", "digits", marks_of("digits"),
        "write numbers as they are spoken, like asrkit data normalize --numbers en"),
    UtteranceCheck("symbols", "warning", "symbols that stand for words", marks_of("symbols"),
        "write the words that are spoken: per cent, dollars, and"),
    UtteranceCheck("encoding", "warning", "text that was read in a wrong encoding", wrong_encoding,
        "read the source as UTF-8, or use asrkit data normalize"),
    UtteranceCheck("alphabets", "warning", "words with letters of two alphabets", mixed_alphabets,
        "replace the letters that only look alike: each is a separate label"),
]  # fmt: skip
