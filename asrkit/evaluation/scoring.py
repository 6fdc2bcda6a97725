"""Scores of recognisers on a corpus."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from asrkit.errors import UserError
from asrkit.evaluation.delays import Delay, summarize
from asrkit.evaluation.outcomes import Outcome
from asrkit.evaluation.turns import TurnSummary, summarized
from asrkit.evaluation.wer import ErrorRate, Interval, bootstrap, cer, wer
from asrkit.evaluation.word_accuracy import WordAccuracy, word_accuracy
from asrkit.evaluation.written import Written, written
from asrkit.runtime.words import whole


class Score(NamedTuple):
    """The score of a recogniser on a corpus; None for what was not measured."""

    words: ErrorRate
    characters: ErrorRate  # the measure for languages without spaces
    each: dict[str, ErrorRate]  # errors in words of every utterance, by id
    accuracy: WordAccuracy
    delay: Delay | None = None  # of tokens, against forced alignment
    loss: float | None = None  # nats per token; None if no reference can be written and aligned
    turns: TurnSummary | None = None
    written: Written | None = None  # normalised words, marks and capitals

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the word error rate in percent; None without reference words."""
        return bootstrap(list(self.each.values()))

    def __str__(self) -> str:
        rates = f"{self.words}, CER {self.characters.percent}"
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


def scores_of_channels(
    outcomes: Sequence[Mapping[str, Outcome]], normalize: Normalize | None = None
) -> dict[str, Score]:
    """Return the score of each recogniser on each channel; {} unless there are several channels."""
    found = {outcome.channel for each in outcomes for outcome in each.values()}
    channels = sorted(channel for channel in found if channel is not None)
    if len(channels) < 2:
        return {}
    return {
        f"{name}, channel {channel}": score_of(
            [each[name] for each in outcomes if each[name].channel == channel], normalize
        )
        for name in outcomes[0] for channel in channels
    }  # fmt: skip


def score_of(outcomes: Sequence[Outcome], normalize: Normalize | None = None) -> Score:
    """Return the score of one recogniser."""
    references = [outcome.reference for outcome in outcomes]
    texts = [outcome.text for outcome in outcomes]
    late = [outcome.delays for outcome in outcomes if outcome.delays is not None]
    tokens, last = ([frames for each in late for frames in each[of]] for of in (0, 1))
    losses = [outcome.loss for outcome in outcomes if outcome.loss is not None]
    nats, units = sum(loss.nats for loss in losses), sum(loss.tokens for loss in losses)
    return Score(
        words=wer(references, texts),
        characters=cer(references, texts),
        each={outcome.id: outcome.errors for outcome in outcomes},
        accuracy=word_accuracy(
            (
                whole(each.result.words),
                each.reference.split(),
                each.alignment and each.alignment.words,
            )
            for each in outcomes
        ),
        delay=summarize(tokens, last, outcomes[0].frame_ms),
        loss=nats / units if units else None,
        turns=summarized([outcome.turn for outcome in outcomes if outcome.turn is not None]),
        written=written(references, texts, normalize) if normalize else None,
    )


def rates(found: Mapping[str, Score]) -> dict[str, dict[str, float]]:
    """Return WER and CER in percent, by the recognisers' names; empty without reference words.

    For written text, `normalized_wer` is the WER of the normalised texts.
    """
    each = {
        "wer": {name: score.words.rate for name, score in found.items()},
        "cer": {name: score.characters.rate for name, score in found.items()},
    }
    written = {name: score.written for name, score in found.items() if score.written}
    if written:
        each["normalized_wer"] = {name: one.normalized.rate for name, one in written.items()}
    return {
        unit: {name: rate for name, rate in by_name.items() if rate is not None}
        for unit, by_name in each.items()
    }


def losses_of(found: Mapping[str, Score]) -> dict[str, float]:
    """Return the head's loss per token, by the recognisers' names."""
    return {name: score.loss for name, score in found.items() if score.loss is not None}
