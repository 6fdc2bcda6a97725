"""Draw mask, pipeline and passes for docs/concepts.md: python -m tools.figures

`tools/delay_figure.py` measures and draws the page's other figure.
"""

import argparse
from pathlib import Path

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


def main() -> None:
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    for draw in (mask, pipeline, passes):
        draw()


if __name__ == "__main__":
    main()
