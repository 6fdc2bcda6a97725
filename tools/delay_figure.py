"""Measure and draw docs/images/delay.svg: error rate against delay, of live text and of final text.

python -m tools.delay_figure small-en-alnum dev.jsonl
"""

import argparse
import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import asrkit
from asrkit import audio
from asrkit.data.manifest import read_manifest
from tools.svg import box, line, text, write

IMAGES = Path(__file__).resolve().parents[1] / "docs/images"
CHUNKS_MS, AHEAD_MS, FRAME_MS = (640, 320, 160), (0, 160), 40
PAUSE_MS = 600  # pause that ends a segment
PACKET_SECONDS, SILENCE_SECONDS = 0.02, 2.0
HISS = 1e-4  # standard deviation of the silence after a recording
X0, Y0, WIDTH, HEIGHT, GAP = 60, 44, 300, 220, 50  # of the two panels


class Point(NamedTuple):
    """A context, its delay in ms and its word error rate in %."""

    chunk: str  # milliseconds, or "full"
    ahead: int  # milliseconds
    delay: float
    rate: float
    passes: int = 1


def rates(model: str, manifest: str, chunks: str, ahead: int, *options: str) -> list[Any]:
    """Return the scores of each chunk of a model, in this order."""
    command = [sys.executable, "-m", "asrkit.evaluate", "--model", model, "--format", "json",
               "--backend", "eager", "--chunk-ms", chunks, "--right-ms", str(ahead), *options,
               manifest]  # fmt: skip
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return [*found["contexts"].values()]


def live(model: str, manifest: str) -> list[Point]:
    """Return the mean delay of a label and the error rate in each context; full context is last."""
    names, points = [*map(str, CHUNKS_MS), "full"], {}
    for ahead in AHEAD_MS:
        found = rates(model, manifest, ",".join(names), ahead)
        for name, score in zip(names, found, strict=True):
            at = ahead if name != "full" else 0
            rate = score["words"]["rate"]
            points[name, at] = Point(name, at, score["delay_ms"]["mean"], rate)
    return [*(each for each in points.values() if each.chunk != "full"), points["full", 0]]


def final(model: str, manifest: str) -> list[Point]:
    """Return the median time to the final text, and its error rate, with one and with two passes.

    In seconds of audio both have the same times.
    """
    recordings = [audio.load(each.audio) for each in read_manifest(Path(manifest))]
    pause, names = ("--endpoint-ms", str(PAUSE_MS)), ",".join(map(str, CHUNKS_MS))
    points = []
    for ahead in AHEAD_MS:
        one = rates(model, manifest, names, ahead, *pause)
        two = rates(model, manifest, names, ahead, *pause, "--second-pass", "full")
        for chunk, *scores in zip(CHUNKS_MS, one, two, strict=True):
            recognizer = asrkit.load(
                model, chunk // FRAME_MS, right_context=ahead // FRAME_MS, backend="eager",
                endpointer=asrkit.Endpointer(PAUSE_MS), second_pass="full",
            )  # fmt: skip
            times = [time_to_final(recognizer, samples) for samples in recordings]
            delay = median(time for time in times if time is not None)
            points += [
                Point(str(chunk), ahead, delay, score["words"]["rate"], passes)
                for passes, score in enumerate(scores, start=1)
            ]
    return points


def time_to_final(recognizer: asrkit.Recognizer, samples: np.ndarray) -> float | None:
    """Return the ms of audio from the end of the last word until its text is final.

    The time to compute is not counted. Silence follows the recording; None without words.
    """
    hiss = np.random.default_rng(0).standard_normal(int(SILENCE_SECONDS * audio.SAMPLE_RATE))
    stream = np.concatenate([samples, (HISS * hiss).astype(np.float32)])
    session, size, found = recognizer.start(), int(PACKET_SECONDS * audio.SAMPLE_RATE), None
    ended = 0  # segments so far
    for start in range(0, len(stream), size):
        segments = session.accept(stream[start : start + size]).segments
        words = [word for segment in segments[ended:] for word in segment.words]
        ended = len(segments)
        if words:
            found = 1000 * ((start + size) / audio.SAMPLE_RATE - words[-1].end)
    return found


def draw(path: Path, spoken: list[Point], ended: list[Point]) -> None:
    """Draw live text in the left panel and final text in the right one."""
    *chunks, full = spoken
    most = max(point.rate for point in (*chunks, *ended)) * 1.15
    parts = [
        *panel(0, chunks, most, "live text: mean delay of a label, ms", 0),
        *panel(WIDTH + GAP, ended, most, "final text: time after the last word, ms", PAUSE_MS),
    ]
    y = height_of(full.rate, most)
    words = f"full context, {full.rate:.1f} %, after the recording"
    parts += [
        line("line", (X0, y), (X0 + WIDTH, y)),
        text(X0 + WIDTH, y + 14, words, "small end"),
        text(X0, 20, "word error rate; beside each point: its chunk in ms", "small"),
    ]
    for place, (ahead, kind) in enumerate(zip(AHEAD_MS, ("orange", "blue"), strict=True)):
        x, words = X0 + WIDTH + GAP + 130 * place, f"{ahead} ms ahead" if ahead else "no look-ahead"
        parts += [box(kind, x, 10, 10, 10, 2), text(x + 16, 20, words, "ink")]
    for passes, words in ((1, "one pass"), (2, "two passes")):
        last = max((each for each in ended if each.passes == passes), key=lambda each: each.delay)
        y = height_of(last.rate, most)
        parts.append(text(X0 + 2 * WIDTH + GAP - 4, y + 5, words, "ink"))
    title = "Word error rate against delay, of live text and of the final text of two passes"
    write(path, title, X0 + 2 * WIDTH + GAP + 90, Y0 + HEIGHT + 48, parts)


def height_of(rate: float, most: float) -> float:
    return Y0 + HEIGHT - rate / most * HEIGHT


def panel(left: float, points: list[Point], most: float, title: str, first: int) -> list[str]:
    """Return the parts of a panel, whose delays begin with `first` ms."""
    x0, last = X0 + left, max(point.delay for point in points)
    scale = WIDTH / ((last - first) * 1.12)
    parts = [line("line", (x0, Y0), (x0, Y0 + HEIGHT), (x0 + WIDTH, Y0 + HEIGHT))]
    for rate in range(0, int(most) + 1, 2):
        y = height_of(rate, most)
        parts.append(line("faint", (x0, y), (x0 + WIDTH, y)))
        if not left:
            parts.append(text(x0 - 8, y + 4, f"{rate} %", "small end"))
    for delay in range(first, int(first + WIDTH / scale) + 1, 100):
        x = x0 + (delay - first) * scale
        parts.append(text(x, Y0 + HEIGHT + 18, str(delay), "small middle"))
    for ahead, passes in product(AHEAD_MS, sorted({point.passes for point in points})):
        own = [each for each in points if (each.ahead, each.passes) == (ahead, passes)]
        kind = "blue" if ahead else "orange"
        places = [(x0 + (p.delay - first) * scale, height_of(p.rate, most)) for p in own]
        parts.append(line(f"{kind}line", *places))
        for point, (x, y) in zip(own, places, strict=True):
            parts.append(box(kind, x - 4, y - 4, 8, 8, 4))
            if passes == 1:  # two passes have the same chunks below
                parts.append(text(x, y + (18 if ahead else -9), point.chunk, "small middle"))
    parts.append(text(x0 + WIDTH / 2, Y0 + HEIGHT + 38, title, "middle"))
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="model file, or the name of a ready model")
    parser.add_argument("manifest", help="recordings with their texts")
    options = parser.parse_args()
    spoken, ended = (measure(options.model, options.manifest) for measure in (live, final))
    draw(IMAGES / "delay.svg", spoken, ended)
    for kind, points in (("live", spoken), ("final", ended)):
        for chunk, ahead, delay, rate, passes in points:
            print(
                f"{kind}, {passes} pass: {chunk:>4} ms, {ahead:3} ms ahead: {delay:4.0f} ms, "
                f"WER {rate:.2f} %"
            )


if __name__ == "__main__":
    main()
