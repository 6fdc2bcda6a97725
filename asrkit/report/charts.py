"""Line charts as SVG with the page's colours."""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from asrkit.report.html import Html, join, tag
from asrkit.report.tensorboard import Point

WIDTH, HEIGHT = 440, 250
LEFT, RIGHT, TOP, BOTTOM = 66, 12, 12, 40


class Axis(NamedTuple):
    """A function from values to pixels."""

    low: float
    high: float
    start: float  # pixel of `low`
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log(max(value, low)), math.log(low), math.log(high)
        return self.start + (self.end - self.start) * (value - low) / (high - low)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about `count` round numbers from `low` to `high`."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2, 5, 10, …, or only powers of ten if there would be more than 8 ticks."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1,)):
        found = [m * 10.0**p for p in powers for m in steps]
        found = [tick for tick in found if low * 0.999 <= tick <= high * 1.001]
        if len(found) <= 8:
            break
    return found


def axes(series: dict[str, list[Point]], log: bool) -> tuple[Axis, Axis]:
    """Return axes that include all points."""
    points = [point for line in series.values() for point in line]
    last = max(max(p.step for p in points), 1.0)
    low, high = min(p.low for p in points), max(p.high for p in points)
    if log:
        low, high = low * 0.9, high * 1.1
    else:
        low, high = min(0.0, low), high * 1.05 if high > 0 else 1.0
    x = Axis(0.0, last, LEFT, WIDTH - RIGHT)
    return x, Axis(low, high, HEIGHT - BOTTOM, TOP, log)


def line_chart(
    series: dict[str, list[Point]], y_label: str, describe: Callable[[Point], str],
    log: bool = False, dots: bool = False,
) -> Html:  # fmt: skip
    """Draw lines over steps, with a band from lowest to highest for points of several steps.

    Args:
        describe: function that returns the tooltip of a point.
        log: use a logarithmic axis, for values above 0.
        dots: mark every point, so that a single point is visible.
    """
    if log:
        series = {name: [p for p in line if p.low > 0] for name, line in series.items()}
    series = {name: line for name, line in series.items() if line}
    if not series:
        return tag("p", "No value can be drawn.", class_="note")
    x, y = axes(series, log)
    drawn = [*grid(x, y), *labels(y_label)]
    for i, (name, line) in enumerate(series.items()):
        drawn += [*lines(line, x, y, i), *hovers(name, line, x, y, i, describe, dots)]
    return tag(
        "svg", *drawn, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=f"{y_label} by step"
    )


def grid(x: Axis, y: Axis) -> Iterator[Html]:
    for tick in log_ticks(y.low, y.high) if y.log else ticks(y.low, y.high):
        at = y(tick)
        yield tag("line", x1=x.start, x2=x.end, y1=at, y2=at, class_="grid")
        yield tag("text", f"{tick:g}", x=x.start - 6, y=at + 4, text_anchor="end")
    for tick in ticks(x.low, x.high):
        yield tag("line", x1=x(tick), x2=x(tick), y1=y.start, y2=y.start + 4, class_="axis")
        yield tag("text", f"{tick:g}", x=x(tick), y=y.start + 17, text_anchor="middle")
    yield tag("line", x1=x.start, x2=x.end, y1=y.start, y2=y.start, class_="axis")


def labels(y_label: str) -> Iterator[Html]:
    yield tag("text", "step", x=WIDTH - RIGHT, y=HEIGHT - 6, text_anchor="end", class_="label")
    middle = (TOP + HEIGHT - BOTTOM) / 2
    yield tag(
        "text", y_label, transform=f"translate(11 {middle:g}) rotate(-90)",
        text_anchor="middle", class_="label",
    )  # fmt: skip


def lines(points: list[Point], x: Axis, y: Axis, index: int) -> Iterator[Html]:
    def path(corners: list[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{x(step):.1f} {y(value):.1f}" for step, value in corners)

    if any(point.low < point.high for point in points):
        upper = [(point.step, point.high) for point in points]
        lower = [(point.step, point.low) for point in reversed(points)]
        yield tag("path", d=path(upper + lower) + "Z", class_=f"band c{index % 6}")
    corners = [(point.step, point.value) for point in points]
    yield tag("path", d=path(corners), class_=f"line c{index % 6}")


def hovers(
    name: str, points: list[Point], x: Axis, y: Axis, index: int,
    describe: Callable[[Point], str], dots: bool,
) -> Iterator[Html]:  # fmt: skip
    """Yield the tooltips, on dots or, without dots, on the whole height."""
    half = (x.end - x.start) / max(1, len(points)) / 2
    for point in points:
        title = tag("title", f"{name}: {describe(point)}")
        at = x(point.step)
        if dots:
            yield tag("circle", title, cx=at, cy=y(point.value), r=3.5, class_=f"dot c{index % 6}")
        else:
            yield tag(
                "rect", title, x=at - half, y=y.end, width=2 * half, height=y.start - y.end,
                class_="hover",
            )  # fmt: skip


def legend(names: list[str]) -> Html:
    """Draw the lines' names, each beside a piece of its line."""
    items = []
    for i, name in enumerate(names):
        piece = tag("line", x1=0, x2=26, y1=5, y2=5, class_=f"line c{i % 6}")
        items.append(tag("span", tag("svg", piece, width=26, height=10, aria_hidden="true"), name))
    return tag("p", join(items), class_="legend")
