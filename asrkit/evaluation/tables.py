"""Tables of text for people."""

from collections.abc import Iterable, Sequence


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], width: int = 9) -> str:
    """Return a title and a line for each row: the first column to the left, others to the right."""
    lines = [titles, *rows]
    widths = [max(width, *map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        " ".join([f"{name:<{first}}", *map(str.rjust, cells, others)])
        for (name, *cells), (first, *others) in ((line, widths) for line in lines)
    )
