"""Print the lines of each folder of asrkit beside its budget: python tools/lines.py"""

from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "asrkit"
TOTAL = 33_000
BUDGETS = {
    "model": 3300, "search": 1460, "lm": 900, "text": 560, "audio": 1550,
    "backends": 800, "export": 1500, "interop": 1300, "config": 850,
    "runtime": 3350, "data": 2800, "evaluation": 880,
    "training": 2150, "transcription": 480, "report": 600, "serve": 4740,
    "cli": 900, "commands": 3250, "pretrained": 10, "hub": 530,
    "": 1000,  # files outside the folders
}  # fmt: skip


def lines_by_folder() -> Counter[str]:
    """Return the lines of Python, with docstrings and blanks, of each folder of asrkit."""
    lines: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        folder = path.relative_to(PACKAGE).parts[0] if path.parent != PACKAGE else ""
        lines[folder] += path.read_bytes().count(b"\n")
    return lines


def main() -> None:
    lines = lines_by_folder()
    for folder in [*BUDGETS, *sorted(lines.keys() - BUDGETS)]:
        budget = BUDGETS.get(folder, 0)
        print(row(f"asrkit/{folder}", lines[folder], budget))
    print(row("sum", lines.total(), TOTAL))


def row(name: str, lines: int, budget: int) -> str:
    """Format a line of the table; lines beyond the budget stand at its end."""
    over = f"{lines - budget:+9,}" if lines > budget else ""
    return f"{name:22}{lines:8,} of {budget:6,}{over}"


if __name__ == "__main__":
    main()
