"""Normalisation of transcripts: each rule rewrites one kind of mark, and each change is counted."""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Literal, NamedTuple

from asrkit.errors import UserError, shown
from asrkit.extras import need
from asrkit.registry import refusal
from asrkit.text.graphemes import in_one_line
from asrkit.text.marks import (
    FORMS,
    MARKS,
    MISREAD,
    SPELLING,
    SYMBOLS,
    any_of,
    plain_letters,
    reread,
    usual_letters,
)

EXAMPLES = 4  # of each kind, the most frequent
MOST_PAIRS = 10_000  # different changes of a kind that are counted one by one

# Invisible characters that no script needs, unlike the joiners of Persian and Hindi.
INVISIBLE = (
    r"\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
    r"\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff"
)
ESCAPED = re.compile(r"\\u([0-9a-f]{4})|\\x([0-9a-f]{2})", re.IGNORECASE)
USUAL = {sign: forms[0] for forms in FORMS for sign in forms[1:]}
# Punctuation inside of these is not removed: a digit's comma, a sign inside a word.
KEPT = (MARKS["address"], MARKS["annotation"], MARKS["digits"], SPELLING)

# A number alone: not part of a word, a date, a range, a fraction or a telephone number.
NUMBER = re.compile(r"(?<![\w.,:/-])(?<!\d )\d(?:[\d.,]*\d)?(?![\w°²³]|[.,]\d|[-/:]\d| \d)")
ORDINAL = re.compile(r"(?<![\w.,:/-])(\d{1,4})(?:st|nd|rd|th)\b", re.IGNORECASE)
YEAR = re.compile(r"1[1-9]\d\d|20\d\d")
DECIMAL_POINT = {"en", "he", "ja", "kn", "ko", "te", "th"}  # other languages have a comma
SPOKEN_YEARS = {"da", "de", "en", "nl", "no", "sv"}  # 1984 as a year has other words
FAULTS = (ArithmeticError, AttributeError, LookupError, NotImplementedError, TypeError, ValueError)
SAME_LOOK = ("Unicode", "letters")  # rules that change letters to others of the same look


class Normalization(NamedTuple):
    """Choices of a normalisation."""

    case: Literal["keep", "lower", "upper"] = "keep"  # case of all texts
    # Whether punctuation stays. Signs inside a word stay in any case.
    punctuation: Literal["keep", "remove"] = "keep"
    # Brackets with their words: remove both, the brackets alone, or nothing.
    brackets: Literal["remove", "words", "keep"] = "remove"
    # Language in which digits become words, such as en; None keeps digits.
    numbers: str | None = None
    # Letters that look alike: keep them, or write the most frequent one of the corpus.
    letters: Literal["keep", "usual"] = "keep"


class Rule(NamedTuple):
    """A kind of change: each match of a pattern is replaced."""

    name: str
    pattern: re.Pattern[str]
    replace: Callable[[re.Match[str]], str]


class Changes:
    """Counts of changes by the name of their rule, with examples."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.texts: Counter[str] = Counter()
        self.pairs: dict[str, Counter[tuple[str, str]]] = {}

    def add(self, name: str, pairs: list[tuple[str, str]]) -> None:
        """Count the changes that a rule made in a text, as pairs of before and after."""
        known = self.pairs.setdefault(name, Counter())
        self.counts[name] += len(pairs)
        self.texts[name] += 1
        known.update(pair for pair in pairs if pair in known or len(known) < MOST_PAIRS)

    def lines(self) -> Iterator[str]:
        """Yield a line for each rule that changed a text."""
        width = max(map(len, self.counts), default=0)
        for name, count in self.counts.items():
            pairs, format_ = self.pairs[name], ascii if name in SAME_LOOK else shown
            examples = "; ".join(
                f"{format_(old[:40])} {f'→ {shown(new, 40)}' if new.strip() else 'removed'} {n}×"
                for (old, new), n in pairs.most_common(EXAMPLES)
            )
            more = "; …" if len(pairs) > EXAMPLES else ""
            yield f"{name:<{width}}{count:>7} in {self.texts[name]} texts: {examples}{more}"


class Normalizer:
    """A function that normalises a text and counts what it changes.

    Args:
        texts: all texts of the corpus, for `choices.letters`.
    """

    def __init__(self, choices: Normalization, texts: Iterable[str] = ()) -> None:
        self.rules = rules_of(choices)
        if choices.letters == "usual":
            usual = usual_letters(list(map(self, texts)))
            self.rules.append(Rule("letters", any_of(usual), lambda match: usual[match[0]]))

    def __call__(self, text: str, changes: Changes | None = None) -> str:
        """Return the text after all rules, with single spaces."""
        for rule in self.rules:
            pairs: list[tuple[str, str]] = []
            text = rule.pattern.sub(partial(_replaced, rule.replace, pairs), text)
            if pairs and changes is not None:
                changes.add(rule.name, pairs)
        return in_one_line(text)


def _replaced(
    replace: Callable[[re.Match[str]], str], pairs: list[tuple[str, str]], match: re.Match[str]
) -> str:
    old, new = match.group(), replace(match)
    if old != new:
        pairs.append((old, new))
    return new


def rules_of(choices: Normalization) -> list[Rule]:
    """Return the rules in their order: each sees the result of those before it."""
    spaces = re.compile(r"[^\S ]+")
    rules = [
        Rule("encoding", MISREAD, lambda match: reread(match[0]) or match[0]),
        Rule("entities", MARKS["markup"], _unescaped),
        Rule("Unicode", re.compile(r"\S+"), _usual_form),
        Rule("invisible", re.compile(f"[{INVISIBLE}]"), lambda match: ""),
        Rule("spaces", spaces, lambda match: " "),
        Rule("emoji", MARKS["emoji"], lambda match: " "),
        Rule("signs", re.compile(f"[{''.join(USUAL)}]"), lambda match: USUAL[match[0]]),
    ]
    if choices.brackets != "keep":
        inner = choices.brackets == "words"
        rules.append(Rule(
            "brackets", MARKS["annotation"],
            lambda match: re.sub(r"[^\w\s'-]|_", " ", match[0]) if inner else " ",
        ))  # fmt: skip
    if choices.numbers:
        rules += number_rules(choices.numbers)
    if choices.punctuation == "remove":
        kept = "|".join(f"(?:{each.pattern})" for each in KEPT)
        mark = re.compile(rf"{kept}|(?P<mark>[^\w\s])", re.IGNORECASE)
        rules.append(Rule("punctuation", mark, _unless_kept))
    if choices.case != "keep":
        change = str.lower if choices.case == "lower" else str.upper
        rules.append(Rule("case", re.compile(r"\S+"), lambda match: change(match[0])))
    return rules


def _usual_form(match: re.Match[str]) -> str:
    return unicodedata.normalize("NFC", plain_letters(match[0]))


def _unescaped(match: re.Match[str]) -> str:
    """Return the letters of an entity or an escape; a tag, a line end or %20 is a space."""
    if code := ESCAPED.fullmatch(match[0]):
        letter = chr(int(code[1] or code[2], 16))
        return letter if letter.isprintable() else " "
    if match[0][0] == "&":
        return html.unescape(match[0])
    return match[0][1] if match[0] in ("\\'", '\\"') else " "


def _unless_kept(match: re.Match[str]) -> str:
    mark: str | None = match["mark"]
    if not mark or mark in SYMBOLS or unicodedata.category(mark)[0] != "P":
        return match[0]
    return " "


def number_rules(language: str) -> list[Rule]:
    """Return the rules that write numbers in words."""
    need("num2words")
    from num2words import CONVERTER_CLASSES, num2words

    if language not in CONVERTER_CLASSES:
        raise UserError(f"--numbers: the language {refusal(language, CONVERTER_CLASSES)}")

    def words(value: str, to: str = "cardinal") -> str | None:
        try:
            number = float(value) if "." in value else int(value)
            found = num2words(number, lang=language, to=to).replace(",", "")
        except FAULTS:  # a number or a form that this language's rules lack
            return None
        return found.replace("-", " ") if language.startswith("en") else found

    def cardinal(match: re.Match[str]) -> str:
        value = plain_number(match[0], language)
        return (value and words(value)) or match[0]

    rules = [Rule("numbers", NUMBER, cardinal)]
    if language.startswith("en"):
        rules.append(
            Rule("ordinals", ORDINAL, lambda match: words(match[1], "ordinal") or match[0])
        )
    return rules


def plain_number(text: str, language: str) -> str | None:
    """Return a number without separators, with a decimal point; None if it has several readings.

    Years in some languages, leading zeros and times have several; so has 1.000 in English.
    """
    base = language.partition("_")[0]
    point, group = (".", ",") if base in DECIMAL_POINT else (",", ".")
    if re.fullmatch(rf"[1-9]\d{{0,2}}(?:{re.escape(group)}\d{{3}})+", text):
        text = text.replace(group, "")
    elif base in SPOKEN_YEARS and YEAR.fullmatch(text):
        return None
    whole, _, decimals = text.partition(point)
    fits = re.fullmatch(r"0|[1-9]\d{0,14}", whole) and re.fullmatch(r"(?!\d{3}$)\d{0,6}", decimals)
    return f"{int(whole)}{f'.{decimals}' if decimals else ''}" if fits else None
