"""Marks in a transcript that are not letters: entities, brackets, digits, signs, smileys."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache

import regex

HTML_TAGS = "a|b|br|div|em|font|h[1-6]|hr|i|img|li|ol|p|s|span|strong|sub|sup|table|td|tr|u|ul"
# Entities that browsers accept without ";"
BARE_ENTITIES = "amp|lt|gt|quot|nbsp|copy|reg|[aouAOU]uml|szlig|[aeiouAEIOU](?:acute|grave|circ)"
DOMAINS = "com|org|net|edu|gov|info|io|co|uk|de|fr|es|it|nl|at|ch|eu|ru|cn|jp"
EMOJI = "\u2600-\u27bf\u2b00-\u2bff\ufe0f\u20e3\U0001f000-\U0001faff\U000e0020-\U000e007f"
SYMBOLS = "%&@#*\\/_|~§¶°†‡•‰※"  # spoken as words, like Unicode's category S
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
# Letters and signs of one script that look alike. Some languages have two of a line.
ALIKE = (
    "\u06cc \u064a", "\u06cc \u0649", "\u06a9 \u0643", "\u06aa \u0643",  # Arabic yeh, kaf
    "\u06c1 \u0647", "\u06be \u0647", "\u06c3 \u0629", "\u06c0 \u0647\u0654",  # heh, teh
    "\u0626 \u06cc\u0654", *(f"{chr(0x660 + n)} {chr(0x6f0 + n)}" for n in range(10)),
    "\u05f0 \u05d5\u05d5", "\u05f1 \u05d5\u05d9", "\u05f2 \u05d9\u05d9", "' \u05f3",  # Hebrew
    "- \u05be", "' \u02bb \ua78c", "\u00b7 \u2027 \u2219 \u22c5", "\u301c \uff5e",  # signs
    "\u0219 \u015f", "\u0218 \u015e", "\u021b \u0163", "\u021a \u0162",  # s, t with comma, cedilla
    "\u0259 \u01dd", "\u018f \u018e", "g \u0261", "\u0110 \u00d0 \u0189",  # Latin schwa, g, D
    "\u04c0 \u0406", "\u0f0b \u0f0c",  # Cyrillic palochka, Tibetan tsheg
    *(f"{chr(a + 6)} {chr(a + 5)}{chr(a + 0x3e)}" for a in (0x900, 0x980, 0xa00, 0xa80, 0xb00)),
    "\u0913 \u0905\u094b", "\u0914 \u0905\u094c", "\u09ce \u09a4\u09cd\u200d",  # Indic o, au, ta
    *(f"{a} {b}\u0d4d\u200d" for a, b in zip("ൺൻർൽൾൿ", "ണനരലളക", strict=True)),  # Malayalam
    "\u0e41 \u0e40\u0e40", "\u0e33 \u0e4d\u0e32",  # Thai
    "\u0ec1 \u0ec0\u0ec0", "\u0eb3 \u0ecd\u0eb2",  # Lao
)  # fmt: skip
TATWEEL = "\u0640"  # lengthens the line between two Arabic letters
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


def usual_letters(texts: Sequence[str]) -> dict[str, str]:
    """Return the letters of the texts that look like a more frequent one, with that letter.

    A form of print has its plain letters, if the texts have them too; a tatweel has no letter.
    """
    count: Counter[str] = Counter()
    for text in texts:
        count.update(text)
    lines = [line.split() for line in ALIKE]
    for form in {form for line in lines for form in line if len(form) > 1}:
        if set(form) <= count.keys():
            count[form] = sum(text.count(form) for text in texts)
    usual = {TATWEEL: ""} if count[TATWEEL] else {}
    for c in filter(COMPATIBLE.match, list(count)):
        if set(plain := plain_letters(c)) <= count.keys() - {c}:
            usual[c] = plain
    kept: list[str] = []
    letters = dict.fromkeys(form for line in lines for form in line if count[form])
    for letter in sorted(letters, key=lambda form: -count[form]):
        like = {form for line in lines if letter in line for form in line}
        usual_one = next((form for form in kept if form in like), None)
        if usual_one is None:
            kept.append(letter)
        else:
            usual[letter] = usual_one
    return usual


def plain_letters(text: str) -> str:
    """Return the text with plain letters for those of COMPATIBLE."""
    return COMPATIBLE.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text)


def any_of(forms: Iterable[str]) -> re.Pattern[str]:
    """Return the pattern of any of these letters and signs, the longest first."""
    return re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True))) or "(?!)")


def reread(run: str) -> str | None:
    """Return the meaning of UTF-8 that was read in a wrong encoding, or None for other letters."""
    for encoding in ("cp1252", "latin-1"):
        with suppress(UnicodeError):
            return run.encode(encoding).decode("utf-8")
    return None
