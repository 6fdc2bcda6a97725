"""Parts of the pictures of README.md and docs/: SVG with colours for light and for dark pages."""

from collections.abc import Iterable
from html import escape
from pathlib import Path

from asrkit.atomic_write import replacing

STYLE = """
  text { font: 14px ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif }
  .mono { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 15px }
  .small { font-size: 12px } .bold { font-weight: 700 } .middle { text-anchor: middle }
  .end { text-anchor: end } text { fill: #57606a } .ink { fill: #1f2328 }
  .line { stroke: #8c959f; fill: none } .faint { stroke: #d0d7de; fill: none }
  .good { fill: #dafbe1; stroke: none }
  .blue { fill: #0969da; stroke: none }
  .orange { fill: #bc4c00; stroke: none }
  .wave, .blueline { stroke: #0969da; stroke-width: 2; fill: none }
  .orangeline { stroke: #bc4c00; stroke-width: 2; fill: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #8d96a0 } .ink { fill: #e6edf3 }
    .line { stroke: #656d76 } .faint { stroke: #30363d }
    .good { fill: #12261e }
    .blue { fill: #4493f8 }
    .orange { fill: #db6d28 }
    .wave, .blueline { stroke: #4493f8 } .orangeline { stroke: #db6d28 }
  }
"""


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """Return a text whose baseline begins at (x, y); `kind` has classes of STYLE."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def line(kind: str, *points: tuple[float, float]) -> str:
    """Return a line through points (x, y)."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="{kind}" points="{path}"/>'


def box(kind: str, x: float, y: float, width: float, height: float, round_: float = 0) -> str:
    """Return a rectangle with its upper left corner at (x, y)."""
    size = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{kind}" {size} rx="{round_:g}"/>'


def write(path: Path, title: str, width: float, height: float, parts: Iterable[str]) -> None:
    """Write an SVG of these parts, atomically. The title is for readers who do not see it."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        *parts,
        "</svg>",
    ]
    with replacing(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
