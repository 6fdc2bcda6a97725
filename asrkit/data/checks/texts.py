"""Checks of one text: characters and marks that are not spoken, or that only look alike.

A transcript becomes labels without changes. Characters that are not spoken are therefore learned as
noise, and count as errors in each score.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache

from asrkit.data.checks.facts import Facts, Rules, UtteranceCheck
from asrkit.errors import shown

EXAMPLES = 3  # marks of a text in a message
HTML_TAGS = "a|b|br|div|em|font|h[1-6]|hr|i|img|li|ol|p|s|span|strong|sub|sup|table|td|tr|u|ul"
# Entities that browsers accept without ";"
BARE_ENTITIES = "amp|lt|gt|quot|nbsp|copy|reg|[aouAOU]uml|szlig|[aeiouAEIOU](?:acute|grave|circ)"
DOMAINS = "com|org|net|edu|gov|info|io|co|uk|de|fr|es|it|nl|at|ch|eu|ru|cn|jp"
EMOJI = "\u2600-\u27bf\u2b00-\u2bff\ufe0f\u20e3\U0001f000-\U0001faff\U000e0020-\U000e007f"
NUMBERS = r"\d\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u2089\u2150-\u2189\u2460-\u24ff\u2776-\u2793"

# Kinds of marks, in the order of their removal from a text: later kinds do not see the characters
# of earlier kinds, such as the "@" of an address.
MARKS: dict[str, re.Pattern[str]] = {
    "markup": re.compile(
        rf"&(?:#\d+|#x[0-9a-f]+|[a-z][a-z0-9]*);|&(?:{BARE_ENTITIES})(?![a-z0-9])"
        rf"|</?(?:{HTML_TAGS})(?:\s[^<>]*)?/?>"
        r"|\\u[0-9a-f]{4}|\\x[0-9a-f]{2}|\\[nrt\"']|(?<=[^\W\d])%20",
        re.IGNORECASE,
    ),
    "address": re.compile(
        r"[a-z][a-z0-9+.-]*://\S+|\bmailto:\S+|\bwww\.\S+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
        rf"|(?<!\w)[@#][^\W\d]\w*(?!\S)|\b[\w-]+(?:\.[\w-]+)*\.(?:{DOMAINS})\b(?:/\S*)?",
        re.IGNORECASE,
    ),
    "annotation": re.compile(
        r"\(\([^()]*\)\)|<[^<>]*>|\[[^\[\]]*\]|\{[^{}]*\}|\([^()]*\)"
        r"|（[^（）]*）|【[^【】]*】|〔[^〔〕]*〕|［[^［］]*］|｛[^｛｝]*｝|＜[^＜＞]*＞"
        r"|(?<!\w)([*_#=/|~+%^$!])\1*[^\W\d][\w -]*\1+(?!\w)|(?<!\S)[%&+~!][^\W\d]\w*|[♩-♯]",
    ),
    "emoji": re.compile(
        rf"[0-9#*]\ufe0f?\u20e3|[{EMOJI}](?:\u200d?[{EMOJI}])*"
        r"|(?<!\S)(?:[:;=]['’]?-?[)(DPpOo|/\\*3]+|<3)(?!\w)|[:;]-?[)(D](?!\w)"
    ),
    "digits": re.compile(rf"[{NUMBERS}](?:[{NUMBERS}.,:]*[{NUMBERS}])?"),
}
SYMBOLS = "%&@#*\\/_|~§¶°†‡•‰※"  # spoken as words, like Unicode's category S
APOSTROPHES = "'’‘ʼ＇′´`ʹ"  # with a letter on one or both sides: don't, 'tis, dogs'
HYPHENS = "-‐‑·‧־״׳་"  # letters on both sides; · in Catalan, ־ ״ ׳ in Hebrew, ་ in Tibetan
SPELLING = re.compile(
    rf"(?<=[^\W\d_])[{APOSTROPHES}]|[{APOSTROPHES}](?=[^\W\d_])|(?<=\w)[{HYPHENS}](?=\w)|་"
)
# Alphabets with letters that look alike: А Α A. A word is in only one of them.
ALPHABETS = {"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "COPTIC", "CHEROKEE"}
WORD = re.compile(r"[^\W\d_]+")


@lru_cache(maxsize=1 << 17)
def marks_in(text: str) -> dict[str, list[str]]:
    """Return the marks in a text by kind: the kinds of MARKS, "symbols" and "punctuation"."""
    found: dict[str, list[str]] = {}
    for kind, pattern in MARKS.items():
        if kind == "digits":
            text = SPELLING.sub("x", text)  # a letter, which keeps the word whole
        if marks := [match.group() for match in pattern.finditer(text)]:
            found[kind] = marks
            text = pattern.sub(" ", text)
    for c in text:
        category = unicodedata.category(c)[0]
        if category == "S" or c in SYMBOLS:
            found.setdefault("symbols", []).append(c)
        elif category == "P":
            found.setdefault("punctuation", []).append(c)
    return found


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
    for run in re.findall(r"[\u00c2\u00c3][^\x00-\x7f]|[^\x00-\x7f]{3,}", facts.text):
        for encoding in ("cp1252", "latin-1"):
            with suppress(UnicodeError):
                meant = run.encode(encoding).decode("utf-8")
                return f"{shown(run)} for {shown(meant)} in {shown(facts.text)}"
    return None


def alphabet(letter: str) -> str | None:
    """Return the name of a letter's alphabet in ALPHABETS, or None."""
    name = unicodedata.name(letter, "").partition(" ")[0]
    return name if name in ALPHABETS else None


def mixed_alphabets(facts: Facts, rules: Rules) -> str | None:
    """Find words with look-alike letters of two alphabets, such as a Cyrillic "Е" in "SЕVEN"."""
    for word in WORD.findall(facts.text):
        if word.isascii():
            continue
        letters = [(c, alphabet(c)) for c in word]
        names = [name for _, name in letters if name]
        if len(set(names)) > 1:
            usual = max(names, key=names.count)
            odd = (f"{c!r} is {n.title()}" for c, n in letters if n and n != usual)
            return f"{', '.join(dict.fromkeys(odd))} in {shown(word)}"
    return None


def other_spaces(facts: Facts, rules: Rules) -> str | None:
    """Find tabs, line ends and no-break spaces: often two columns, or two lines, in one text."""
    found = sorted({c for c in facts.text.strip() if c.isspace() and c != " "})
    return named(found, facts.text) if found else None


TEXT_CHECKS: list[UtteranceCheck] = [
    UtteranceCheck("markup", "warning", "entities, tags or escapes of a file format",
        marks_of("markup"), "decode them (html.unescape in Python), remove tags"),
    UtteranceCheck("address", "warning", "addresses of the web, of mail or of people",
        marks_of("address"), "write the words that are spoken: example dot com"),
    UtteranceCheck("annotation", "warning", "brackets, tags of sounds, marked fillers",
        marks_of("annotation"),
        "remove what is not spoken; remove lines with unknown words"),
    UtteranceCheck("emoji", "warning", "emoji and smileys", marks_of("emoji"), "remove them"),
    UtteranceCheck("digits", "warning", "digits", marks_of("digits"),
        "write numbers as they are spoken: twenty three"),
    UtteranceCheck("symbols", "warning", "symbols that stand for words", marks_of("symbols"),
        "write the words that are spoken: per cent, dollars, and"),
    UtteranceCheck("encoding", "warning", "text that was read in a wrong encoding", wrong_encoding,
        "read the source as UTF-8 and write the manifest again"),
    UtteranceCheck("alphabets", "warning", "words with letters of two alphabets", mixed_alphabets,
        "replace the letters that only look alike: each is a separate label"),
    UtteranceCheck("spaces", "note", "tabs, line ends or no-break spaces in texts", other_spaces,
        "each counts as one space; check that the text has no other column or line"),
]  # fmt: skip
