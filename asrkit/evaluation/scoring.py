"""Scores of recognisers on a corpus."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from asrkit.errors import UserError
from asrkit.evaluation.calibration import calibration
from asrkit.evaluation.delays import Delay, summarize
from asrkit.evaluation.outcomes import Outcome
from asrkit.evaluation.wer import ErrorRate, Interval, bootstrap, cer, wer
from asrkit.evaluation.written import Written, written
from asrkit.runtime.words import in_units
from asrkit.text.graphemes import units


class Score(NamedTuple):
    """The score of a recogniser on a corpus; None for what was not measured."""

    words: ErrorRate  # by units
    characters: ErrorRate  # spaces count too
    each: dict[str, ErrorRate]  # errors by units of every utterance, by id
    calibration_error: float  # of the confidences of all words, 0 to 1
    delay: Delay | None = None  # of tokens, against forced alignment
    loss: float | None = None  # nats per token; None if no reference can be written and aligned
    written: Written | None = None

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the rate by units in percent; None without reference units."""
        return bootstrap(list(self.each.values()))

    @property
    def rates(self) -> dict[str, ErrorRate]:
        """The rate by units, and the CER of units that are not all characters; by name."""
        own = {self.words.name: self.words}
        return own | {"CER": self.characters} | own

    def __str__(self) -> str:
        others = [f", {name} {rate.percent}" for name, rate in self.rates.items()][1:]
        rates = "".join([str(self.words), *others])
        if self.written is not None:
            rates += f", {self.written}"
        if self.delay is None:
            return rates
        mean, median, p90, last = self.delay
        last_too = "" if last is None else f", last {last:.0f}"
        late = f"{mean:.0f} ms late (median {median:.0f}, 90 % {p90:.0f}{last_too})"
        return f"{rates}; tokens {late}"


Normalize = Callable[[str], str]


def scores(
    outcomes: Iterable[Mapping[str, Outcome]], normalize: Normalize | None = None
) -> dict[str, Score]:
    """Return the score of each recogniser, by name.

    Args:
        normalize: normaliser of the texts, to score written text too.
    """
    outcomes = list(outcomes)
    if not outcomes:
        raise UserError("the manifest has no recording to score: check texts and audio files")
    return {name: score_of([each[name] for each in outcomes], normalize) for name in outcomes[0]}


def score_of(outcomes: Sequence[Outcome], normalize: Normalize | None = None) -> Score:
    """Return the score of one recogniser."""
    references = [outcome.reference for outcome in outcomes]
    texts = [outcome.text for outcome in outcomes]
    late = [outcome.delays for outcome in outcomes if outcome.delays is not None]
    tokens, last = ([frames for each in late for frames in each[of]] for of in (0, 1))
    losses = [outcome.loss for outcome in outcomes if outcome.loss is not None]
    nats, count = sum(loss.nats for loss in losses), sum(loss.tokens for loss in losses)
    return Score(
        words=wer(references, texts),
        characters=cer(references, texts),
        each={outcome.id: outcome.errors for outcome in outcomes},
        calibration_error=calibration(
            (in_units(each.result.words), units(each.reference)) for each in outcomes
        ),
        delay=summarize(tokens, last, outcomes[0].frame_ms),
        loss=nats / count if count else None,
        written=written(references, texts, normalize) if normalize else None,
    )


def rates(found: Mapping[str, Score]) -> dict[str, dict[str, float]]:
    """Return `Score.rates` in percent, by the recognisers' names; empty without reference units.

    For written text, `normalized_wer` is the WER of the normalised texts.
    """
    each: dict[str, dict[str, float]] = {}
    for name, score in found.items():
        own = {key.lower(): rate for key, rate in score.rates.items()}
        if score.written:
            one = score.written.normalized
            own[f"normalized_{one.name.lower()}"] = one
        for key, rate in own.items():
            each.setdefault(key, {}).update({} if rate.rate is None else {name: rate.rate})
    return each


def unit_rates(found: Mapping[str, Score]) -> dict[str, float]:
    """Return the rates by units in percent, by the recognisers' names, without empty ones."""
    rates = {name: score.words.rate for name, score in found.items()}
    return {name: rate for name, rate in rates.items() if rate is not None}
