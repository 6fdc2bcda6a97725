"""Tables in Markdown, as a whole or line by line while something is measured."""

from collections.abc import Iterable, Sequence


def markdown(titles: Sequence[object], rows: Iterable[Iterable[object]]) -> str:
    """Return a table with its titles and rows."""
    return "\n".join([row(titles), "|---" * len(titles) + "|", *map(row, rows)])


def row(cells: Iterable[object]) -> str:
    """Return the line of a row. A cell stays one cell: its bars are escaped, its breaks spaces."""
    shown = (" ".join(str(cell).replace("|", r"\|").split("\n")) for cell in cells)
    return f"| {' | '.join(shown)} |"
