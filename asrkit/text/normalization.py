"""Normalisation of transcripts: each rule rewrites one kind of mark, and each change is counted."""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, NamedTuple

from asrkit.errors import UserError, shown
from asrkit.extras import need
from asrkit.registry import refusal
from asrkit.text.graphemes import in_one_line
from asrkit.text.marks import COMPATIBLE, FORMS, MARKS, MISREAD, SPELLING, SYMBOLS, reread

EXAMPLES = 4  # of each kind, the most frequent

# Invisible characters that no script needs, unlike the joiners of Persian and Hindi.
INVISIBLE = (
    r"\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
    r"\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff"
)
USUAL = {sign: forms[0] for forms in FORMS for sign in forms[1:]}
# Punctuation inside of these is not removed: a digit's comma, a sign inside a word.
KEPT = (MARKS["address"], MARKS["annotation"], MARKS["digits"], SPELLING)

# A whole number alone: not a year, nor part of a word, date, range, fraction or telephone number.
NUMBER = re.compile(
    r"(?<![\w.,:/-])(?<!\d )(?:0|(?!(?:1[1-9]|20)\d\d\b)[1-9]\d{0,14})"
    r"(?![\w°²³]|[.,]\d|[-/:]\d| \d)"
)
FAULTS = (ArithmeticError, AttributeError, LookupError, NotImplementedError, TypeError, ValueError)


class Normalization(NamedTuple):
    """Choices of a normalisation."""

    case: Literal["keep", "lower", "upper"] = "keep"  # case of all texts
    # Whether punctuation stays. Signs inside a word stay in any case.
    punctuation: Literal["keep", "remove"] = "keep"
    # Brackets with their words: remove both, the brackets alone, or nothing.
    brackets: Literal["remove", "words", "keep"] = "remove"
    # Language in which whole numbers become words, such as en; None keeps digits.
    numbers: str | None = None


class Rule(NamedTuple):
    """A kind of change: each match of a pattern is replaced."""

    name: str
    pattern: re.Pattern[str]
    replace: Callable[[re.Match[str]], str]


class Normalizer:
    """A function that normalises a text.

    Attributes:
        changes: counts of the changes by rule, as pairs of before and after.
    """

    def __init__(self, choices: Normalization) -> None:
        self.rules = rules_of(choices)
        self.changes: dict[str, Counter[tuple[str, str]]] = {}

    def __call__(self, text: str) -> str:
        """Return the text after all rules, with single spaces."""
        for rule in self.rules:
            text = rule.pattern.sub(partial(self._replaced, rule), text)
        return in_one_line(text)

    def _replaced(self, rule: Rule, match: re.Match[str]) -> str:
        old, new = match.group(), rule.replace(match)
        if old != new:
            self.changes.setdefault(rule.name, Counter())[old, new] += 1
        return new

    def lines(self) -> Iterator[str]:
        """Yield a line for each rule that changed a text, with its most frequent changes."""
        width = max(map(len, self.changes), default=0)
        for name, pairs in self.changes.items():
            format_ = ascii if name == "Unicode" else shown  # both forms look the same
            examples = "; ".join(
                f"{format_(old[:40])} {f'→ {shown(new, 40)}' if new.strip() else 'removed'} {n}×"
                for (old, new), n in pairs.most_common(EXAMPLES)
            )
            more = "; …" if len(pairs) > EXAMPLES else ""
            yield f"{name:<{width}}{pairs.total():>7}: {examples}{more}"


def rules_of(choices: Normalization) -> list[Rule]:
    """Return the rules in their order: each sees the result of those before it."""
    rules = [
        Rule("encoding", MISREAD, lambda match: reread(match[0]) or match[0]),
        Rule(
            "entities",
            MARKS["markup"],
            lambda match: html.unescape(match[0]) if match[0][0] == "&" else " ",
        ),
        Rule("Unicode", re.compile(r"\S+"), _usual_form),
        Rule("invisible", re.compile(f"[{INVISIBLE}]"), lambda match: ""),
        Rule("spaces", re.compile(r"[^\S ]+"), lambda match: " "),
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
        rules.append(number_rule(choices.numbers))
    if choices.punctuation == "remove":
        kept = "|".join(f"(?:{each.pattern})" for each in KEPT)
        mark = re.compile(rf"{kept}|(?P<mark>[^\w\s])", re.IGNORECASE)
        rules.append(Rule("punctuation", mark, _unless_kept))
    if choices.case != "keep":
        change = str.lower if choices.case == "lower" else str.upper
        rules.append(Rule("case", re.compile(r"\S+"), lambda match: change(match[0])))
    return rules


def _usual_form(match: re.Match[str]) -> str:
    plain = COMPATIBLE.sub(lambda each: unicodedata.normalize("NFKC", each[0]), match[0])
    return unicodedata.normalize("NFC", plain)


def _unless_kept(match: re.Match[str]) -> str:
    mark: str | None = match["mark"]
    if not mark or mark in SYMBOLS or unicodedata.category(mark)[0] != "P":
        return match[0]
    return " "


def _touches_symbol(match: re.Match[str]) -> bool:
    (start, end), text = match.span(), match.string
    beside = text[max(0, start - 1) : start] + text[end : end + 1]
    return any(each in SYMBOLS or unicodedata.category(each)[0] == "S" for each in beside)


def number_rule(language: str) -> Rule:
    """Return the rule that writes whole numbers in words."""
    need("num2words")
    from num2words import CONVERTER_CLASSES, num2words

    if language not in CONVERTER_CLASSES:
        raise UserError(f"--numbers: the language {refusal(language, CONVERTER_CLASSES)}")

    def words(match: re.Match[str]) -> str:
        if _touches_symbol(match):  # "$five" and "fifty%" are not what is said
            return match[0]
        try:
            found = str(num2words(int(match[0]), lang=language)).replace(",", "")
        except FAULTS:  # of some languages, for large numbers
            return match[0]
        return found.replace("-", " ") if language.startswith("en") else found

    return Rule("numbers", NUMBER, words)
