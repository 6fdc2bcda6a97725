"""The work of `asrkit models`: the catalogue as a table."""

import argparse

from asrkit.catalogue import Entry, read_catalogue
from asrkit.cli.table import markdown
from asrkit.downloads import bytes_here

TITLES = [
    "name", "languages", "parameters", "licence", "chunk + ahead in ms", "writes", "download",
    "on this disk", "note",
]  # fmt: skip
MOST_LANGUAGES = 4  # languages in a cell


def models(options: argparse.Namespace) -> int:
    found = read_catalogue()
    print(markdown(TITLES, map(cells, found.models)))
    print("\nnot runnable:")
    for each in found.cannot_run:
        print(f"{', '.join(each.names)}: {each.why}; the nearest one is {each.nearest}")
    return 0


def cells(entry: Entry) -> list[str]:
    """Return the row of a model."""
    languages = " ".join(entry.languages)
    if len(entry.languages) > MOST_LANGUAGES:
        languages = f"{len(entry.languages)} languages"
    ready = entry.repository is None
    return [
        entry.name,
        languages,
        f"{entry.parameters:g} M",
        entry.licence or "that of its card",
        ", ".join(entry.contexts),
        ", ".join(entry.writes) or "words",
        "none: in the package" if ready else megabytes(entry.size),
        megabytes(entry.size if ready else bytes_here(entry)),
        entry.note,
    ]


def megabytes(size: int | None) -> str:
    return f"{size / 1e6:.0f} MB" if size else "–"
