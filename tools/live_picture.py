"""Draw live text turning final: a recording streamed as a microphone would, as an SVG.

python -m tools.live_picture a.wav --model small-en-alnum --output docs/images/live.svg

The SVG has colours for light and for dark pages. Each row is an update of one real run, beside the
seconds of audio that the session had received.
"""

import argparse
from html import escape
from typing import NamedTuple

import numpy as np
import soundfile

import asrkit
from asrkit.atomic_write import write_text

PACKET = 0.02  # seconds: what a microphone gives at once
WIDTH, LEFT, RIGHT = 820, 88, 20  # pixels
WAVE, ROW = 64, 25  # heights in pixels
BARS = 240
NOTE = "above: live text; below: the same network in full context, when the speaker has ended"
STYLE = """
  text { font: 14px ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif }
  .mono { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 15px }
  .small { font-size: 12px } .bold { font-weight: 700 }
  text { fill: #57606a } .ink { fill: #1f2328 }
  .faint { stroke: #d0d7de; fill: none } .good { fill: #dafbe1; stroke: none }
  .wave { stroke: #0969da; stroke-width: 2; fill: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #8d96a0 } .ink { fill: #e6edf3 }
    .faint { stroke: #30363d } .good { fill: #12261e } .wave { stroke: #4493f8 }
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


def picture(samples: np.ndarray, live: list[Update], final: Update) -> str:
    """Return the SVG: the wave of samples (n,) above, a row for each update below."""
    scale = (WIDTH - LEFT - RIGHT) / final.seconds  # pixels a second
    parts = np.array_split(np.abs(samples), BARS)
    loudest = max(float(part.max()) for part in parts) or 1.0
    shown, middle = [], WAVE / 2
    for place, part in enumerate(parts):
        x = LEFT + (place + 0.5) * final.seconds / BARS * scale
        half = max(float(part.max()) / loudest * (WAVE - 12) / 2, 0.5)
        shown.append(upright("wave", x, middle - half, middle + half))
    before: list[str] = []
    for place, each in enumerate(live):
        x, y = LEFT + each.seconds * scale, WAVE + ROW * (place + 1) - 7
        shown += [upright("faint", x, 2, WAVE - 2), text(8, y, f"{each.seconds:.2f} s", "small")]
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
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 29}" role="img">',
        f"<title>Live text of a recording: {escape(final.text)}</title>",
        f"<style>{STYLE}</style>",
        *shown,
        f'<rect class="good" x="0" y="{y - 18}" width="{WIDTH}" height="{ROW}" rx="4"/>',
        text(8, y, "final", "small"),
        text(LEFT, y, final.text, "mono ink bold"),
        text(LEFT, y + 23, NOTE, "small"),
        "</svg>\n",
    ])  # fmt: skip


def text(x: float, y: float, words: str, kind: str) -> str:
    """Return a text whose baseline begins at (x, y); `kind` has classes of STYLE."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def upright(kind: str, x: float, top: float, bottom: float) -> str:
    """Return a vertical line."""
    return f'<polyline class="{kind}" points="{x:.1f},{top:.1f} {x:.1f},{bottom:.1f}"/>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("recording", help="audio file of a few seconds, of one channel")
    parser.add_argument("--model", default="small-en-alnum", help="model to run")
    parser.add_argument("--output", default="docs/images/live.svg", help="SVG to write")
    options = parser.parse_args()
    samples, rate = soundfile.read(options.recording, dtype="float32", always_2d=True)
    live, final = run(options.model, samples[:, 0], rate)
    write_text(options.output, picture(samples[:, 0], live, final))
    for each in (*live, final):
        print(f"{each.seconds:6.2f} s  {each.text}")


if __name__ == "__main__":
    main()
