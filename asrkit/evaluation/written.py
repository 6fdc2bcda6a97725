"""Scores of texts that are normalised by Whisper's rules, as on the open ASR leaderboard."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from asrkit.evaluation.tables import table
from asrkit.evaluation.wer import ErrorRate, Interval, bootstrap, interval_shown, total, wer
from asrkit.extras import need
from asrkit.model_contents import ModelFile, RunnableModel


class Written(NamedTuple):
    """The written text of a corpus. Its written rate is that of the exact texts, `Score.words`."""

    normalized: ErrorRate  # by units of the normalised texts
    interval: Interval | None  # 95 % interval of their rate
    empty: int  # references without normalised words, which are not counted

    def __str__(self) -> str:
        return f"normalised {self.normalized.name} {self.normalized.percent}"

    def as_json(self) -> dict[str, Any]:
        """Return the scores for JSON."""
        rate = self.normalized._asdict() | {"rate": self.normalized.rate}
        return self._asdict() | {"normalized": rate}


def rules_for(languages: Sequence[str]) -> str:
    """Return the name of the normaliser for a model's languages."""
    return "english" if [*languages[:1]] == ["en"] else "basic"


def rules_of(file: ModelFile | RunnableModel, asked: str | None = None) -> str | None:
    """Return the name of the normaliser that scores a model's written text, or None.

    Args:
        asked: the user's choice; None for the model's language, if the model has `text.written`.
    """
    return asked or (rules_for(file.terms.languages) if file.config.text.written else None)


def normalizer_of(rules: str | None) -> Callable[[str], str] | None:
    """Return a normaliser by its name; None for None."""
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
    return Written(total(each), bootstrap(each), len(pairs) - len(each))


def written_table(found: dict[str, Written | None], rules: str) -> str:
    """Return a table of the normalised error rates of each recogniser."""
    known = {name: each for name, each in found.items() if each is not None}
    rate = total(each.normalized for each in known.values())
    rows = [
        [
            name, each.normalized.percent, interval_shown(each.interval),
            str(each.normalized.errors), str(each.normalized.reference_units), str(each.empty),
        ]
        for name, each in known.items()
    ]  # fmt: skip
    titles = ["chunk", "normalised", "95 %", "errors", f"{rate.unit}s", "empty"]
    note = f"normalised by the {rules} rules of whisper-normalizer"
    return f"{table(titles, rows)}\n{note}; the {rate.name} above is of exact texts"
