"""The table: error rates of every change, and the intervals of their gains."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from asrkit.cli.table import markdown
from asrkit.evaluation.wer import paired

Scores = dict[str, Any]  # of one model, as `asrkit evaluate --format json` writes them

NOTES = """\
- WER in percent: mean over the seeds, the lowest and the highest in brackets. Greedy search, no
  language model, and the left context of the model file, unless the study's `scores` say otherwise.
- Against the base: errors of all columns together, as a change in percent of the base's, with
  the 95 % interval of a bootstrap that draws seeds of both and recordings anew. Where it holds 0,
  the change may be chance. With one seed, the chance of training has no part in it.
- Minutes: of a training, in the median, all side by side on this machine.
"""


class Row(NamedTuple):
    change: str
    overrides: Sequence[str]
    models: Sequence[Scores]  # one for each seed

    def rates(self, context: str) -> list[float]:
        return [model["contexts"][context]["words"]["rate"] for model in self.models]

    def errors(self) -> np.ndarray:
        """(seeds, recordings) of all contexts."""
        of_each = [list(model["contexts"].values()) for model in self.models]
        return np.array(
            [np.sum([list(c["errors"].values()) for c in contexts], 0) for contexts in of_each]
        )


def report(facts: Mapping[str, str], rows: Sequence[Row], base: str) -> str:
    """The report in Markdown. A row without models has failed.

    Args:
        rows: rows, at least one with models.
        base: the change that the others are compared with.
    """
    with_models = [row for row in rows if row.models]
    contexts = list(with_models[0].models[0]["contexts"])
    bases = [row for row in with_models if row.change == base]
    titles = ["change", "seeds", *(f"WER {name}" for name in contexts), "against the base, %",
              "minutes"]  # fmt: skip
    lines = []
    for row in rows:
        name = f"{row.change} `{' '.join(row.overrides)}`" if row.overrides else row.change
        if not row.models:
            lines.append([name, "failed", *[""] * (len(titles) - 2)])
            continue
        minutes = statistics.median(m["training"]["wall_seconds"] for m in row.models) / 60
        gains = [gain(each, row) for each in bases if each is not row]
        rates = [mean_and_range(row.rates(context)) for context in contexts]
        lines.append([name, str(len(row.models)), *rates, *(gains or [""]), f"{minutes:.0f}"])
    listed = "".join(f"- {name}: {value}\n" for name, value in facts.items())
    return f"# What pays\n\n{listed}\n{markdown(titles, lines)}\n\n{NOTES}"


def mean_and_range(rates: Sequence[float]) -> str:
    mean = f"{statistics.fmean(rates):.1f}"
    return mean if len(rates) == 1 else f"{mean} ({min(rates):.1f}–{max(rates):.1f})"


def gain(base: Row, row: Row) -> str:
    """The change in percent, with its interval; the units make no difference to it."""
    errors = base.errors(), row.errors()
    found = paired(*errors, np.ones(errors[0].shape[1]))
    low, high = found.percent_interval
    return f"{found.percent:+.0f} ({low:+.0f} to {high:+.0f})"
