"""Marks in a transcript that are not letters: entities, brackets, digits, signs, smileys."""

import re
from contextlib import suppress
from functools import lru_cache

import regex

HTML_TAGS = "a|b|br|div|em|font|h[1-6]|hr|i|img|li|ol|p|s|span|strong|sub|sup|table|td|tr|u|ul"
DOMAINS = "com|org|net|edu|gov|info|io|co|uk|de|fr|es|it|nl|at|ch|eu|ru|cn|jp"
EMOJI = "\u2600-\u27bf\u2b00-\u2bff\ufe0f\u20e3\U0001f000-\U0001faff\U000e0020-\U000e007f"
SYMBOLS = "%&@#*\\/_|~§¶°†‡•‰※"  # spoken as words, like Unicode's category S
NUMBERS = r"\d\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u2089\u2150-\u2189\u2460-\u24ff\u2776-\u2793"

# Kinds of marks, in the order of their removal from a text: later kinds do not see the characters
# of earlier kinds, such as the "@" of an address.
MARKS: dict[str, re.Pattern[str]] = {
    "markup": re.compile(
        rf"&(?:#\d+|#x[0-9a-f]+|[a-z][a-z0-9]*);|</?(?:{HTML_TAGS})(?:\s[^<>]*)?/?>",
        re.IGNORECASE,
    ),
    "address": re.compile(
        r"\b[a-z][a-z0-9+.-]{0,20}://\S+|\bmailto:\S+|\bwww\.\S+|[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]+)+"
        rf"|(?<!\w)[@#][^\W\d]\w*(?!\S)|\b[\w-]{{1,63}}(?:\.[\w-]{{1,63}}){{0,8}}\.(?:{DOMAINS})\b(?:/\S*)?",
        re.IGNORECASE,
    ),
    "annotation": re.compile(
        r"\(\([^()]*\)\)|<[^<>]*>|\[[^\[\]]*\]|\{[^{}]*\}|\([^()]*\)"
        r"|（[^（）]*）|【[^【】]*】|〔[^〔〕]*〕|［[^［］]*］|｛[^｛｝]*｝|＜[^＜＞]*＞"
        r"|(?<!\w)(?P<sign>[*_#=/|~+%^$!])(?<!(?P=sign)(?P=sign))(?P=sign)*"
        r"[^\W\d][\w -]{0,200}(?P=sign)+(?!\w)"
        r"|(?<!\S)[%&+~!][^\W\d]\w*|[♩-♯]"
    ),
    "emoji": re.compile(
        rf"[0-9#*]\ufe0f?\u20e3|[{EMOJI}](?:\u200d?[{EMOJI}])*"
        r"|(?<!\S)(?:[:;=]['’]?-?[)(DPpOo|/\\*3]+|<3)(?!\w)|[:;]-?[)(D](?!\w)"
    ),
    "digits": re.compile(rf"[{NUMBERS}](?:[{NUMBERS}.,:]*[{NUMBERS}])?"),
    "symbols": regex.compile(rf"[\p{{S}}{re.escape(SYMBOLS)}]"),
    "punctuation": regex.compile(r"\p{P}"),
}
APOSTROPHES = "'’‘ʼ＇′´`ʹ"  # with a letter on one or both sides: don't, 'tis, dogs'
HYPHENS = "-‐‑·‧־״׳་"  # letters on both sides; · in Catalan, ־ ״ ׳ in Hebrew, ་ in Tibetan
SPELLING = re.compile(
    rf"(?<=[^\W\d_])[{APOSTROPHES}]|[{APOSTROPHES}](?=[^\W\d_])|(?<=\w)[{HYPHENS}](?=\w)|་"
)
FORMS = ("'’‘ʼ＇′´`ʹ", "-‐‑", '"“”„‟«»″＂')  # signs with the same meaning, the usual one first
# Forms of letters for old encodings and for print: ligatures, Arabic letters by their place, full
# and half width.
COMPATIBLE = re.compile(
    r"[\u00b5\u0132\u0133\u01c4-\u01cc\u03d0-\u03d6\u03f0-\u03f5\u2e80-\u2fd5\ufb00-\ufdff"
    r"\ufe70-\ufefc\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff61-\uffdc\U0001d400-\U0001d7ff]+"
)
# A run of letters that can be UTF-8 which was read as Latin-1 or Windows-1252
MISREAD = re.compile(r"[\u00c2\u00c3][^\x00-\x7f]|[^\x00-\x7f]{3,}")


@lru_cache(maxsize=1 << 17)
def marks_in(text: str) -> dict[str, list[str]]:
    """Return the marks in a text by the kinds of MARKS."""
    found: dict[str, list[str]] = {}
    for kind, pattern in MARKS.items():
        if kind == "digits":
            text = SPELLING.sub("x", text)  # a letter, which keeps the word whole
        if marks := [match.group() for match in pattern.finditer(text)]:
            found[kind] = marks
            text = pattern.sub(" ", text)
    return found


def reread(run: str) -> str | None:
    """Return the meaning of UTF-8 that was read in a wrong encoding, or None for other letters."""
    for encoding in ("cp1252", "latin-1"):
        with suppress(UnicodeError):
            return run.encode(encoding).decode("utf-8")
    return None
