"""Draw live text turning final: a recording streamed as a microphone would, as an SVG.

python -m tools.live_picture a.wav --model small-en-alnum --output docs/images/live.svg

The SVG has colours for light and for dark pages. Each row is an update of one real run, beside the
seconds of audio that the session had received.
"""

import argparse
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile

import asrkit
from tools.svg import box, line, text, write

PACKET = 0.02  # seconds: what a microphone gives at once
WIDTH, LEFT, RIGHT = 820, 88, 20  # pixels
WAVE, ROW = 64, 25  # heights in pixels
BARS = 240
NOTE = "above: live text; below: the same network in full context, when the speaker has ended"


class Update(NamedTuple):
    """A text and the seconds of audio that the session had received."""

    seconds: float
    text: str


def run(model: str, samples: np.ndarray, rate: int) -> tuple[list[Update], Update]:
    """Stream samples (n,) in packets of a microphone. Return the live updates and the final one."""
    session = asrkit.load(model, second_pass="full").start(sample_rate=rate)
    live: list[Update] = []
    size = round(PACKET * rate)
    for start in range(0, len(samples), size):
        packet = samples[start : start + size]
        text = session.accept(packet).text
        if text and (not live or live[-1].text != text):
            live.append(Update((start + len(packet)) / rate, text))
    return live, Update(len(samples) / rate, session.finish().text)


def draw(path: Path, samples: np.ndarray, live: list[Update], final: Update) -> None:
    """Write the SVG: the wave of samples (n,) above, a row for each update below."""
    scale = (WIDTH - LEFT - RIGHT) / final.seconds  # pixels a second
    parts = np.array_split(np.abs(samples), BARS)
    loudest = max(float(part.max()) for part in parts) or 1.0
    shown, middle = [], WAVE / 2
    for place, part in enumerate(parts):
        x = LEFT + (place + 0.5) * final.seconds / BARS * scale
        half = max(float(part.max()) / loudest * (WAVE - 12) / 2, 0.5)
        shown.append(line("wave", (x, middle - half), (x, middle + half)))
    before: list[str] = []
    for place, each in enumerate(live):
        x, y = LEFT + each.seconds * scale, WAVE + ROW * (place + 1) - 7
        shown += [
            line("faint", (x, 2), (x, WAVE - 2)),
            text(8, y, f"{each.seconds:.2f} s", "small"),
        ]
        words = each.text.split()
        pairs = enumerate(zip(words, before, strict=False))
        changed = (place for place, (word, was) in pairs if word != was)
        same = next(changed, min(len(words), len(before)))
        old, new = (escape(" ".join(part)) for part in (words[:same], words[same:]))
        shown.append(
            f'<text class="mono" x="{LEFT}" y="{y}" xml:space="preserve">{old}{" " if old else ""}'
            f'<tspan class="ink">{new}</tspan></text>'
        )
        before = words
    y = WAVE + ROW * (len(live) + 1) - 7
    shown += [
        box("good", 0, y - 18, WIDTH, ROW, 4),
        text(8, y, "final", "small"),
        text(LEFT, y, final.text, "mono ink bold"),
        text(LEFT, y + 23, NOTE, "small"),
    ]
    write(path, f"Live text of a recording: {final.text}", WIDTH, y + 29, shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("recording", help="audio file of a few seconds, of one channel")
    parser.add_argument("--model", default="small-en-alnum", help="model to run")
    parser.add_argument("--output", default="docs/images/live.svg", type=Path, help="SVG to write")
    options = parser.parse_args()
    samples, rate = soundfile.read(options.recording, dtype="float32", always_2d=True)
    live, final = run(options.model, samples[:, 0], rate)
    draw(options.output, samples[:, 0], live, final)
    for each in (*live, final):
        print(f"{each.seconds:6.2f} s  {each.text}")


if __name__ == "__main__":
    main()
