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
from asrkit.atomic_write import replacing

PACKET = 0.02  # seconds: what a microphone gives at once
WIDTH, LEFT, RIGHT = 820, 88, 20  # pixels
WAVE, ROW = 64, 25  # heights in pixels
BARS = 240
STYLE = """
  text { font: 15px ui-monospace, Menlo, Consolas, monospace; fill: #57606a }
  .new, .final { fill: #1f2328 } .final { font-weight: 700 } .note { font-size: 12px }
  .wave { stroke: #0969da; stroke-width: 2 } .chunk { stroke: #d0d7de } .rule { fill: #dafbe1 }
  @media (prefers-color-scheme: dark) {
    text { fill: #8d96a0 } .new, .final { fill: #e6edf3 }
    .wave { stroke: #4493f8 } .chunk { stroke: #30363d } .rule { fill: #12261e }
  }
"""


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


def draw(samples: np.ndarray, seconds: float, live: list[Update], final: Update) -> str:
    """Return the SVG: the wave above, a row for each update below."""
    scale = (WIDTH - LEFT - RIGHT) / seconds  # pixels a second
    loudness = [float(np.abs(part).max()) for part in np.array_split(samples, BARS)]
    loudest = max(loudness) or 1.0
    height = WAVE + ROW * (len(live) + 1) + 22
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>Live text of a recording: {escape(final.text)}</title>",
        f"<style>{STYLE}</style>",
    ]
    for place, loud in enumerate(loudness):
        x = LEFT + (place + 0.5) * seconds / BARS * scale
        lines.append(line("wave", x, max(loud / loudest * (WAVE - 12) / 2, 0.5)))
    for each in live:
        lines.append(line("chunk", LEFT + each.seconds * scale, WAVE / 2 - 2))
    before: list[str] = []
    for place, each in enumerate(live):
        y = WAVE + ROW * (place + 1) - 7
        words = each.text.split()
        pairs = enumerate(zip(words, before, strict=False))
        changed = (place for place, (word, was) in pairs if word != was)
        same = next(changed, min(len(words), len(before)))
        lines.append(f'<text class="note" x="8" y="{y}">{each.seconds:.2f} s</text>')
        old, new = (escape(" ".join(part)) for part in (words[:same], words[same:]))
        lines.append(
            f'<text x="{LEFT}" y="{y}" xml:space="preserve">{old}{" " if old else ""}'
            f'<tspan class="new">{new}</tspan></text>'
        )
        before = words
    y = WAVE + ROW * (len(live) + 1) - 7
    lines += [
        f'<rect class="rule" x="0" y="{y - 18}" width="{WIDTH}" height="{ROW}" rx="4"/>',
        f'<text class="note" x="8" y="{y}">final</text>',
        f'<text class="final" x="{LEFT}" y="{y}">{escape(final.text)}</text>',
        f'<text class="note" x="{LEFT}" y="{height - 6}">above: live text of each chunk; '
        "below: the same network in full context, when the speaker has ended</text>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def line(kind: str, x: float, half: float) -> str:
    """Return a vertical line at x, `half` above and below the middle of the wave."""
    y = WAVE / 2
    ends = f'y1="{y - half:.1f}" y2="{y + half:.1f}"'
    return f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" {ends}/>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("recording", help="audio file of a few seconds, of one channel")
    parser.add_argument("--model", default="small-en-alnum", help="model to run")
    parser.add_argument("--output", default="docs/images/live.svg", type=Path, help="SVG to write")
    options = parser.parse_args()
    samples, rate = soundfile.read(options.recording, dtype="float32", always_2d=True)
    live, final = run(options.model, samples[:, 0], rate)
    with replacing(options.output) as path:
        path.write_text(draw(samples[:, 0], final.seconds, live, final), encoding="utf-8")
    for each in (*live, final):
        print(f"{each.seconds:6.2f} s  {each.text}")


if __name__ == "__main__":
    main()
