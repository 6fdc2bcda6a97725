"""Draw the figures of docs/concepts.md.

python -m tools.figures                                    mask, pipeline and passes
python -m tools.figures --delays small-en-alnum dev.jsonl  error rate against delay, measured now
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tools.svg import arrow, box, line, text, write

IMAGES = Path(__file__).resolve().parents[1] / "docs/images"
CHUNK, LEFT, RIGHT, FRAMES = 4, 4, 2, 12  # of the mask's picture


def sees(query: int, key: int) -> str:
    """Return how frame `query` sees frame `key`: "chunk", "left", "right", or ""."""
    first = query - query % CHUNK
    if first <= key < first + CHUNK:
        return "chunk"
    if first - LEFT <= key < first:
        return "left"
    return "right" if first + CHUNK <= key < first + CHUNK + RIGHT else ""


def mask() -> None:
    """Draw which frames a frame sees: chunks of 4, 4 frames to the left, 2 to the right."""
    kinds = {"chunk": "blue", "left": "pale", "right": "orange", "": "empty"}
    size, x0, y0 = 22, 150, 30
    parts = [
        text(x0, 20, "frames that are seen →", "small"),
        text(8, y0 + 16, "frame that looks ↓", "small"),
    ]
    for query in range(FRAMES):
        for key in range(FRAMES):
            x, y = x0 + key * size, y0 + query * size
            parts.append(box(kinds[sees(query, key)], x + 1, y + 1, size - 2, size - 2, 3))
    for chunk in range(FRAMES // CHUNK):
        y = y0 + (chunk + 0.5) * CHUNK * size + 5
        parts.append(text(x0 - 12, y, f"chunk {chunk + 1}", "end"))
    x = x0 + FRAMES * size + 30
    legend = [
        ("blue", "its own chunk (C = 4)"),
        ("pale", "left context (M = 4): kept keys and values"),
        ("orange", "right context (R = 2): the answer waits for it"),
        ("empty", "not seen"),
    ]
    for place, (kind, words) in enumerate(legend):
        y = y0 + 40 + place * 30
        parts += [box(kind, x, y, 16, 16, 3), text(x + 26, y + 13, words, "ink")]
    title = "Attention in chunks: which frames a frame sees"
    write(IMAGES / "mask.svg", title, 820, y0 + FRAMES * size + 12, parts)


def pipeline() -> None:
    """The stations from samples to text, each with the past that it takes and returns."""
    stations = [
        ("samples", "", ""),
        ("features", "every 10 ms", "240 samples"),
        ("subsampling", "every 40 ms", "1 frame each"),
        ("layers", "in chunks", "keys, values, frames"),
        ("head", "", ""),
        ("search", "", "hypotheses"),
        ("text", "", ""),
    ]
    parts, width, gap = [], 104, 14
    for place, (name, rate, past) in enumerate(stations):
        x = 8 + place * (width + gap)
        middle = x + width / 2
        is_end = place in (0, len(stations) - 1)
        if not is_end:
            parts.append(box("box", x, 24, width, 54, 6))
        parts.append(text(middle, 47 if rate else 56, name, "ink middle bold"))
        if rate:
            parts.append(text(middle, 66, rate, "small middle"))
        if place:
            parts.append(arrow(x - gap + (10 if place == 1 else 2), 51, x - 2, 51))
        if past:
            parts += [
                line("line", (x + width - 18, 78), (x + width - 18, 100), (x + 18, 100)),
                arrow(x + 18, 100, x + 18, 79),
                text(middle, 118, past, "small middle"),
            ]
    note = (
        "each station takes its past, returns a new one; offline is one step from the initial past"
    )
    parts.append(text(8, 146, note, "small"))
    write(IMAGES / "pipeline.svg", "From samples to text", 820, 156, parts)


def passes() -> None:
    """A stream in two passes: live text of each chunk, then the segment once more."""
    x0, chunk, count = 90, 84, 6
    parts = [text(8, 38, "audio", "ink"), text(8, 92, "live text", "ink")]
    parts.append(text(8, 152, "final text", "ink"))
    for place in range(count):
        x = x0 + place * chunk
        spoken = place < count - 2
        parts.append(box("blue" if spoken else "empty", x + 1, 20, chunk - 2, 26, 3))
        if spoken:
            parts += [arrow(x + chunk, 46, x + chunk, 72), box("pale", x0, 76, 0, 0)]
            parts.append(box("pale", x0, 76, (place + 1) * chunk - 4, 24, 3))
    for place, words in enumerate(["six", "six seven", "six seven thirty", "six seven thirty six"]):
        parts.append(text(x0 + (place + 1) * chunk - 8, 93, words.split()[-1], "ink end"))
    end = x0 + count * chunk
    parts += [
        text(x0 + (count - 1) * chunk, 38, "pause", "middle small"),
        line("faint", (end, 14), (end, 166)),
        arrow(end, 46, end, 132),
        box("good", x0, 136, count * chunk, 24, 3),
        text(x0 + 8, 153, "six seventeen thirty six", "ink bold"),
        text(end + 12, 93, "first pass: small chunks", "small"),
        text(end + 12, 153, "second pass: the whole segment", "small"),
    ]
    write(IMAGES / "passes.svg", "Two passes of one network", 820, 172, parts)


def rates(model: str, manifest: str, right_ms: int) -> list[tuple[str, float, float]]:
    """Return chunk, mean delay in ms, and word error rate in %, of each chunk of a model."""
    command = [sys.executable, "-m", "asrkit.evaluate", "--model", model, "--format", "json"]
    command += ["--chunk-ms", "1000,640,320,160", "--right-ms", str(right_ms), manifest]
    found: dict[str, Any] = json.loads(
        subprocess.run(command, capture_output=True, check=True).stdout
    )
    return [
        (name.split()[0], score["delay_ms"]["mean"], score["words"]["rate"])
        for name, score in found["contexts"].items()
    ]


def delays(model: str, manifest: str) -> None:
    """Word error rate against the mean delay of a label, without and with look-ahead."""
    lines = {right: rates(model, manifest, right) for right in (0, 160)}
    points = [point for each in lines.values() for point in each]
    most_ms = max(delay for _, delay, _ in points) * 1.12
    most = max(rate for _, _, rate in points) * 1.15
    x0, y0, width, height = 70, 20, 560, 220

    def place(delay: float, rate: float) -> tuple[float, float]:
        return x0 + delay / most_ms * width, y0 + height - rate / most * height

    parts = [line("line", (x0, y0), (x0, y0 + height), (x0 + width, y0 + height))]
    for rate in range(0, int(most) + 1, 2):
        _, y = place(0, rate)
        parts += [
            line("faint", (x0, y), (x0 + width, y)),
            text(x0 - 8, y + 4, f"{rate} %", "small end"),
        ]
    for delay in range(0, int(most_ms) + 1, 100):
        x, y = place(delay, 0)
        parts.append(text(x, y + 18, str(delay), "small middle"))
    for (right, each), kind in zip(lines.items(), ("orange", "blue"), strict=True):
        parts.append(line(f"{kind}line", *(place(delay, rate) for _, delay, rate in each)))
        for chunk, delay, rate in each:
            x, y = place(delay, rate)
            parts += [
                box(kind, x - 4, y - 4, 8, 8, 4),
                text(x + 6, y + (16 if right else -8), chunk, "small"),
            ]
        x, y = place(*each[0][1:])
        words = "without look-ahead" if not right else f"{right} ms ahead"
        parts += [
            box(kind, x0 + width + 12, y - 6, 10, 10, 2),
            text(x0 + width + 28, y + 4, words, "ink"),
        ]
    parts.append(text(x0 + width / 2, y0 + height + 38, "mean delay of a label, ms", "middle"))
    parts.append(
        text(x0 + 8, y0 + 4, "word error rate; beside each point: its chunk in ms", "small")
    )
    write(IMAGES / "delay.svg", "Word error rate against delay", 820, y0 + height + 48, parts)
    for right, each in lines.items():
        for chunk, delay, rate in each:
            print(f"{chunk:>5} ms, {right:3} ms ahead: delay {delay:.0f} ms, WER {rate:.2f} %")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0],
        epilog="example: python -m tools.figures --delays small-en-alnum an4/dev.jsonl",
    )
    parser.add_argument(
        "--delays", nargs=2, metavar=("MODEL", "MANIFEST"),
        help="measure error rates and delays of a model, and draw them",
    )  # fmt: skip
    options = parser.parse_args()
    if options.delays:
        delays(*options.delays)
        return
    for draw in (mask, pipeline, passes):
        draw()


if __name__ == "__main__":
    main()
