"""Print the models that a name downloads: asrkit models"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from asrkit.cli.parser import Parser
from asrkit.cli.table import markdown

if TYPE_CHECKING:
    from asrkit.hub.catalogue import Entry


def main(argv: list[str] | None = None) -> int:
    return Parser("asrkit models", __doc__, "asrkit models").run(models, argv)


TITLES = [
    "name", "languages", "parameters", "licence", "chunk + ahead in ms", "writes", "download",
    "note",
]  # fmt: skip
MOST_LANGUAGES = 4  # languages in a cell


def models(options: argparse.Namespace) -> int:
    from asrkit.hub.catalogue import read_catalogue

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
    size = f"{entry.size / 1e6:.0f} MB" if entry.size else "–"
    return [
        entry.name,
        languages,
        f"{entry.parameters:g} M",
        entry.licence or "that of its card",
        ", ".join(entry.contexts),
        ", ".join(entry.writes) or "words",
        "none: in the package" if entry.repository is None else size,
        entry.note,
    ]
