"""The report on the measures of all models, in Markdown and charts."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from asrkit.atomic_write import replacing
from tools.studies.positions.chart import draw
from tools.studies.positions.compare import Comparison, Score, compare
from tools.studies.positions.lengths import TIMES
from tools.studies.positions.measure import CONTEXTS, LONG_CONTEXTS

Measures = list[dict[str, Any]]  # of every model of a corpus, as `measure` writes them
Costs = Mapping[str, dict[str, Any]]  # by kind, as `costs` writes them
Scorer = Callable[[dict[str, Any]], Score]  # of one model's measures

NOTES = """\
- WER: words wrong in recordings that training did not hear, greedy search, no language model; the
  mean over the seeds, the lowest and the highest in brackets. Chunks of 640 and 160 ms have the
  left context of the model file.
- Longer audio: the held-out recordings one after the other, the same ones in the same order at
  every length, so that only the length differs. A row goes through several voices.
- Letters: wrong letters, spaces left out. Training never hears one utterance follow another, so a
  model seldom writes the space between two, and joined audio has a high WER at any length, the
  shortest too.
- Told apart: by the logarithms of the rates. With several seeds, means that differ by more than the
  largest difference of as many kinds that are all alike would in 95 % of studies, given the spread
  of the seeds of one kind, pooled over the kinds (Tukey's range test). With one seed, the same for
  the recordings drawn again, alike for all kinds; the chance of training has no part in that. One
  line in twenty would tell apart what is alike. All of it holds for these recordings, this training
  and this size of model.
- One set of settings for all kinds, tried on dev with `relative` alone, which may favour it; dev of
  an4 is also what is measured.
- Time: median of the encoder's step for a chunk of 640 ms of one stream on one thread, left context
  2560 ms, the middle 90 % in brackets; all kinds in turns in one process, after the trainings.
- Memory: peak of a pass over 60 s in full context, above the process before it. Tables: what a
  stream's step keeps, of all layers.
- Parameters of the position: those more than kind `none` has.
"""


def write_report(
    path: Path,
    facts: Mapping[str, str],
    corpora: Mapping[str, Measures],
    costs: Costs,
    failed: Sequence[str],
) -> None:
    """Write the report at `path`, and a picture for each corpus beside it."""
    parts = ["# Position encodings compared\n", *(f"- {k}: {v}" for k, v in facts.items()), ""]
    if failed:
        parts += [f"**Without {', '.join(failed)}: failed.**\n"]
    for corpus, measures in corpora.items():
        if measures:
            picture = path.with_name(f"{path.stem.lower()}-{corpus}.png")
            draw_lengths(picture, corpus, measures)
            parts += [section(corpus, measures, costs, picture.name)]
    parts += ["## How it was measured\n", NOTES]
    with replacing(path) as temporary:
        temporary.write_text("\n".join(parts), encoding="utf-8")


def section(corpus: str, measures: Measures, costs: Costs, picture: str) -> str:
    """Everything about one corpus."""
    first = measures[0]
    words = sum(in_context("full")(first).units)
    minutes = statistics.median(m["training"]["wall_seconds"] for m in measures) / 60
    return "\n".join(
        [
            f"## {corpus}\n",
            f"{len(measures)} models, {words} held-out words each; a training took {minutes:.1f} "
            "minutes in the median.\n",
            main_table(measures, costs),
            "### What can be told apart\n",
            "".join(f"- {line}\n" for line in verdicts(measures)),
            "### Error rate against length\n",
            f"The longest utterance of training, at its slowest, has {first['longest_seconds']:.1f}"
            f" s. Every length holds all {words} words.\n",
            f"![Letters wrong against length]({picture})\n",
            "Letters:\n",
            length_table(measures, "letters"),
            "Words, the spaces between joined utterances among them:\n",
            length_table(measures, "words"),
        ]
    )


def main_table(measures: Measures, costs: Costs) -> str:
    """A row for each kind, the lowest WER in full context first."""
    groups, rows = by_kind(measures), []
    for kind in ranked(groups, in_context("full")):
        own = groups[kind]
        rates = [cell(own, score) for score in headlines().values()]
        size = f"{own[0]['parameters'] / 1e6:.3f}"
        rows.append([kind, *rates, size, *cost_cells(costs.get(kind))])
    titles = ["parameters, M", "of the position", "ms a chunk", "memory, MB", "tables, kB"]
    return table(["kind", *headlines(), *titles], rows)


def headlines() -> dict[str, Scorer]:
    """The scores that are compared, by title."""
    titles = {f"WER {title(name)}": in_context(name) for name in CONTEXTS}
    last = len(TIMES) - 1
    return titles | {
        f"letters at {TIMES[last]}×, {title(name)}": at_length(last, name, "letters")
        for name in LONG_CONTEXTS
    }


def cost_cells(cost: dict[str, Any] | None) -> list[str]:
    if cost is None:
        return ["–"] * 4
    time, memory = cost["milliseconds"], cost["memory_megabytes"]
    return [
        f"{cost['position_parameters']:,}",
        "–" if time is None else f"{time[0]:.2f} ({time[1]:.2f}–{time[2]:.2f})",
        "–" if memory is None else f"{memory:.0f}",
        f"{cost['table_bytes'] / 1000:.1f}",
    ]


def length_table(measures: Measures, unit: str) -> str:
    """Errors at each length in each context, the lowest at the longest in full context first."""
    lengths, groups = measures[0]["lengths"], by_kind(measures)
    places = [(index, name) for name in LONG_CONTEXTS for index in range(len(lengths))]
    titles = [
        f"{title(name)}, {lengths[index]['times']}× ({lengths[index]['seconds']:.0f} s)"
        for index, name in places
    ]
    rows = [
        [kind, *(cell(groups[kind], at_length(index, name, unit)) for index, name in places)]
        for kind in ranked(groups, at_length(-1, "full", unit))
    ]
    return table(["kind", *titles], rows)


def verdicts(measures: Measures) -> list[str]:
    """A sentence for each context and for the longest audio."""
    groups = by_kind(measures)
    if len(groups) < 2:
        return ["One kind alone: nothing to compare."]
    return [
        verdict(name, compare({kind: [score(m) for m in own] for kind, own in groups.items()}))
        for name, score in headlines().items()
    ]


def verdict(name: str, comparison: Comparison) -> str:
    """A sentence on what the scores show with statistical certainty."""
    best, tied, between, within, decided = comparison
    deviations = f"the kinds' rates spread by {percent(between)}"
    if within is not None:
        deviations += f", the seeds of one kind by {percent(within)}"
    if not decided:
        return f"**{name}**: {deviations}. One seed and too few recordings to tell anything apart."
    others = "all others can be told apart from it"
    if tied:
        others = f"not told apart from it: {', '.join(tied)}"
    return f"**{name}**: {deviations}. Lowest: {best}; {others}."


def percent(deviation: float) -> str:
    """A standard deviation of logarithms as a relative deviation of rates, in percent."""
    return f"{100 * (math.exp(deviation) - 1):.0f} %"


def draw_lengths(path: Path, corpus: str, measures: Measures) -> None:
    groups, lengths = by_kind(measures), measures[0]["lengths"]
    panels = {
        "full context" if name == "full" else f"chunks of {title(name)}": {
            kind: [
                (length["seconds"], mean(own, at_length(index, name, "letters")))
                for index, length in enumerate(lengths)
            ]
            for kind, own in groups.items()
        }
        for name in LONG_CONTEXTS
    }
    half_a_letter = 50 / sum(at_length(0, "full", "letters")(measures[0]).units)
    heading = f"{corpus}: letters wrong as recordings get longer"
    draw(path, heading, panels, measures[0]["longest_seconds"], floor=half_a_letter)


def title(context: str) -> str:
    return context if context == "full" else f"{context} ms"


def in_context(name: str) -> Scorer:
    return lambda measures: Score(**measures["contexts"][name]["words"])


def at_length(index: int, name: str, unit: str) -> Scorer:
    return lambda measures: Score(**measures["lengths"][index]["contexts"][name][unit])


def by_kind(measures: Measures) -> dict[str, Measures]:
    kinds = dict.fromkeys(m["kind"] for m in measures)
    return {kind: [m for m in measures if m["kind"] == kind] for kind in kinds}


def ranked(groups: Mapping[str, Measures], score: Scorer) -> list[str]:
    return sorted(groups, key=lambda kind: mean(groups[kind], score))


def mean(measures: Measures, score: Scorer) -> float:
    return statistics.fmean(score(m).rate for m in measures)


def cell(measures: Measures, score: Scorer) -> str:
    """The mean over the seeds, the lowest and the highest."""
    rates = [score(m).rate for m in measures]
    middle = f"{mean(measures, score):.2f}"
    return middle if len(rates) == 1 else f"{middle} ({min(rates):.2f}–{max(rates):.2f})"


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
