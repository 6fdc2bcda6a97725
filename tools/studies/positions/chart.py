"""The chart: letter error rate against the length of the audio, a line for each kind."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from asrkit.atomic_write import replacing
from asrkit.extras import need

Line = Sequence[tuple[float, float]]  # (seconds, percent), by length
MARKERS = "osD^vP*X"
LABEL_HEIGHT = 0.045  # of a panel; labels at the end of their lines keep this distance


def draw(
    path: Path, title: str, panels: Mapping[str, Mapping[str, Line]], longest: float, floor: float
) -> None:
    """Write a PNG with a panel for each context.

    Args:
        path: of the PNG.
        title: above all panels.
        panels: context -> kind -> its line.
        longest: seconds of the longest utterance of training, marked.
        floor: percent shown for anything below; a logarithm has no zero.
    """
    need("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.2 * len(panels), 6.6), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    shown = [max(floor, y) for lines in panels.values() for line in lines.values() for _, y in line]
    low, high = min(shown) / 1.15, max(shown) * 1.15
    styles = styles_of(sorted({kind for lines in panels.values() for kind in lines}))
    all_axes: Any = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (context, lines) in zip(all_axes, panels.items(), strict=True):
        axes.set(xscale="log", yscale="log", ylim=(low, high), title=context)
        axes.set(xlabel="audio, seconds", ylabel="letters wrong, %")
        axes.axvline(longest, color="0.7", linestyle=":", linewidth=1)
        axes.text(longest, low * 1.02, " longest of training", color="0.5", fontsize=8)
        for kind, line in lines.items():
            seconds, rates = zip(*line, strict=True)
            axes.plot(seconds, np.maximum(rates, floor), **styles[kind])
        ticks = [seconds for seconds, _ in next(iter(lines.values()))]
        axes.set_xticks(ticks, [f"{tick:.0f}" for tick in ticks])
        axes.minorticks_off()
        percents = [p for p in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if low <= p <= high]
        percents = percents if len(percents) > 1 else [float(f"{p:.3g}") for p in (low, high)]
        axes.set_yticks(percents, [f"{p:g}" for p in percents])
        axes.grid(color="0.92")
        ends = {kind: (line[-1][0], max(floor, line[-1][1])) for kind, line in lines.items()}
        label(axes, ends, (low, high), styles)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=130)


def styles_of(kinds: Sequence[str]) -> dict[str, dict[str, Any]]:
    """A colour and a marker for each kind, the same in all panels."""
    from matplotlib import colormaps

    colours = colormaps["tab10"].colors  # type: ignore[attr-defined]
    return {
        kind: {
            "color": colours[i % 10],
            "marker": MARKERS[i % len(MARKERS)],
            "linestyle": "-" if i < 10 else "--",
            "linewidth": 1.3,
            "markersize": 4,
        }
        for i, kind in enumerate(kinds)
    }


def label(
    axes: Any,
    ends: Mapping[str, tuple[float, float]],
    limits: tuple[float, float],
    styles: Mapping[str, Mapping[str, Any]],
) -> None:
    """Write each kind's name beside the end of its line, moved so that no two overlap."""
    low, high = np.log(limits)
    kinds = sorted(ends, key=lambda kind: ends[kind][1])
    wanted = [float((np.log(ends[kind][1]) - low) / (high - low)) for kind in kinds]
    for kind, height in zip(kinds, separated(wanted, LABEL_HEIGHT), strict=True):
        axes.annotate(
            kind, xy=ends[kind], xytext=(1.05, height), textcoords="axes fraction",
            color=styles[kind]["color"], fontsize=9, va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": styles[kind]["color"], "linewidth": 0.5,
                        "relpos": (0, 0.5)},
        )  # fmt: skip


def separated(wanted: Sequence[float], distance: float) -> list[float]:
    """Heights in [0, 1], in the order of the sorted `wanted` and near them, `distance` apart."""
    distance = min(distance, 1 / max(1, len(wanted) - 1))
    steps = distance * np.arange(len(wanted))
    level = np.asarray(wanted) - steps  # heights that are far enough apart do not fall here
    up = np.maximum.accumulate(level)
    down = np.minimum.accumulate(level[::-1])[::-1]
    middle = (up + down) / 2  # a crowd stays around its middle
    return list(np.clip(middle, 0.0, 1.0 - steps[-1]) + steps)
