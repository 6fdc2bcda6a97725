"""Scores of written text: normalised word errors, punctuation marks and capitals."""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from asrkit.evaluation.tables import table
from asrkit.evaluation.wer import (
    ErrorRate,
    Interval,
    bootstrap,
    interval_shown,
    total,
    wer,
    word_alignment,
)
from asrkit.extras import need
from asrkit.model_file import ModelFile
from asrkit.text.graphemes import units
from asrkit.text.marks import SPELLING

CAPITALS = "capitals"
SHARES = ("precision", "recall", "f1")


class Found(NamedTuple):
    """Counts of a mark in references and results; `right` stand at the same word in both."""

    reference: int
    result: int
    right: int

    @property
    def precision(self) -> float | None:
        """The share of the result's marks that are right; None without any."""
        return self.right / self.result if self.result else None

    @property
    def recall(self) -> float | None:
        """The share of the reference's marks that were found; None without any."""
        return self.right / self.reference if self.reference else None

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall; None without marks in both."""
        either = self.reference + self.result
        return 2 * self.right / either if either else None


class Written(NamedTuple):
    """The written text of a corpus. Its written rate is that of the exact texts, `Score.words`."""

    normalized: ErrorRate  # by units of the normalised texts
    interval: Interval | None  # 95 % interval of their rate
    empty: int  # references without normalised words, which are not counted
    marks: dict[str, Found]  # of the capitals and of each mark, the most frequent mark first

    def __str__(self) -> str:
        """The scores in a line, the marks by their F1."""
        marks = ", ".join(f"{mark} {share(each.f1)}" for mark, each in self.marks.items())
        return f"normalised {self.normalized.name} {self.normalized.percent}, F1 of {marks}"

    def as_json(self) -> dict[str, Any]:
        """Return the scores for JSON."""
        marks = {
            mark: each._asdict() | {name: getattr(each, name) for name in SHARES}
            for mark, each in self.marks.items()
        }
        rate = self.normalized._asdict() | {"rate": self.normalized.rate}
        return self._asdict() | {"normalized": rate, "marks": marks}


def rules_for(languages: Sequence[str]) -> str:
    """Return the name of the normaliser for a model's languages."""
    return "english" if [*languages[:1]] == ["en"] else "basic"


def rules_of(file: ModelFile, asked: str | None = None) -> str | None:
    """Return the name of the normaliser that scores a model's written text, or None.

    Args:
        asked: the user's choice; None for the model's language, if the model has `text.written`.
    """
    return asked or (rules_for(file.terms.languages) if file.config.text.written else None)


def normalizer_of(rules: str | None) -> Callable[[str], str] | None:
    """Return one of Whisper's normalisers, with which the open ASR leaderboard scores."""
    if rules is None:
        return None
    need("whisper_normalizer")
    from whisper_normalizer.basic import BasicTextNormalizer
    from whisper_normalizer.english import EnglishTextNormalizer

    if rules == "english":
        return EnglishTextNormalizer()
    return BasicTextNormalizer(preserve_marks=True)


def written(
    references: Sequence[str], results: Sequence[str], normalize: Callable[[str], str]
) -> Written:
    """Score pairs of texts with capitals and marks."""
    pairs = [(normalize(a), normalize(b)) for a, b in zip(references, results, strict=True)]
    each = [wer([a], [b]) for a, b in pairs if a.split()]
    counts: list[Counter[str]] = [Counter(), Counter(), Counter()]
    for reference, result in zip(references, results, strict=True):
        for known, found in aligned(reference, result):
            for count, marks in zip(counts, (known, found, known & found), strict=True):
                count.update(mark if len(mark) == 1 else CAPITALS for mark in marks)
    order = {CAPITALS: 0} | dict((counts[0] + counts[1]).most_common())
    scored = {mark: Found(*(count[mark] for count in counts)) for mark in order}
    return Written(total(each), bootstrap(each), len(pairs) - len(each), scored)


Marks = frozenset[str]  # marks at a word, and "capitals" with their places in the word


def aligned(reference: str, result: str) -> Iterator[tuple[Marks, Marks]]:
    """Yield the marks at each pair of words, which are aligned without capitals and marks.

    A mark belongs to the word before it, or to the start of the text.
    """
    (words, marks), (other_words, other_marks) = map(parted, (reference, result))
    yield marks[0], other_marks[0]
    for i, j in word_alignment(words, other_words):
        yield (
            frozenset() if i is None else marks[i + 1],
            frozenset() if j is None else other_marks[j + 1],
        )


def parted(text: str) -> tuple[list[str], list[Marks]]:
    """Return the words of a text in lower case, and the marks at its start and at each word.

    Signs inside a word, and apostrophes beside a letter, are part of the word.
    """
    words, marks = list[str](), [set[str]()]
    for token in units(text.replace("...", "…")):
        inner = {match.start() for match in SPELLING.finditer(token)}
        kept = [i for i, sign in enumerate(token) if i in inner or not is_mark(sign)]
        start, end = (kept[0], kept[-1] + 1) if kept else (len(token), len(token))
        marks[-1].update(token[:start])
        if kept:
            word = token[start:end]
            places = [i for i, letter in enumerate(word) if letter.isupper()]
            words.append(word.lower())
            marks.append({*token[end:], *([f"{CAPITALS} {places}"] if places else [])})
    return words, [frozenset(each) for each in marks]


def is_mark(sign: str) -> bool:
    return unicodedata.category(sign)[0] in "PS"


def written_tables(found: dict[str, Written | None], rules: str) -> Iterator[str]:
    """Yield a table of the normalised error rates, and one of the marks, of each recogniser."""
    known = {name: each for name, each in found.items() if each is not None}
    rate = total(each.normalized for each in known.values())
    above = f"the {rate.name} above is of exact texts"
    note = f"normalised by the {rules} rules of whisper-normalizer; {above}"
    words = [
        [
            name, each.normalized.percent, interval_shown(each.interval),
            str(each.normalized.errors), str(each.normalized.reference_units), str(each.empty),
        ]
        for name, each in known.items()
    ]  # fmt: skip
    titles = ["chunk", "normalised", "95 %", "errors", f"{rate.unit}s", "empty"]
    yield f"{table(titles, words)}\n{note}"
    rows = [
        [name, mark, *map(str, each), *(share(getattr(each, of)) for of in SHARES)]
        for name, one in known.items()
        for mark, each in one.marks.items()
    ]
    titles = ["chunk", "mark", "reference", "result", "right", "precision", "recall", "F1"]
    yield table(titles, rows)


def share(value: float | None) -> str:
    """Format a share in percent."""
    return "–" if value is None else f"{100 * value:.1f} %"
