"""Turn a corpus of another form into manifests: asrkit data import KIND SOURCE --output DIR"""

from __future__ import annotations

import argparse
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from asrkit.atomic_write import new_folder, refuse_existing
from asrkit.cli.parser import Parser, complain, real
from asrkit.data.corpora import KINDS
from asrkit.errors import UserError, shown

if TYPE_CHECKING:
    from asrkit.data.corpora.source import Source

PROGRAM = "asrkit data import"
DEV = 0.1  # share of the hours for dev


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        PROGRAM, __doc__,
        "asrkit data import folder recordings --output corpus\n"
        "  asrkit data import table list.csv --columns audio=f,text=t --output corpus\n"
        "  asrkit data import table en/train.tsv en/dev.tsv en/test.tsv --output corpus\n\n"
        "kinds:\n" + "\n".join(f"  {name:12}{KINDS[name]}" for name in KINDS) + "\n\n"
        "exit status: 0 imported, 1 imported but something was left out, 2 nothing was imported",
    )  # fmt: skip
    arguments.add_argument(
        "kind", choices=["auto", *KINDS], metavar="KIND",
        help=f"kind of the corpus: auto (by its content), {', '.join(KINDS)}",
    )  # fmt: skip
    arguments.add_argument(
        "sources", metavar="SOURCE", nargs="+", help="folders or files of the corpus"
    )
    arguments.add_argument(
        "--output", required=True, metavar="DIR", help="new folder for train.jsonl and dev.jsonl"
    )
    arguments.add_argument(
        "--dev", type=real(0.0, 0.5), metavar="SHARE",
        help="share of the hours for dev, in whole speakers; 0 for train alone (default 0.1)",
    )  # fmt: skip
    arguments.add_argument(
        "--columns", type=columns, metavar="KEY=COLUMN,…",
        help="columns of a table, by name or from 1: audio, text, speaker, id, start, duration, "
        "end, channel (default: by their usual names)",
    )  # fmt: skip
    arguments.add_argument(
        "--audio-root", type=Path, metavar="FOLDER",
        help="folder in which relative paths of audio begin (default: that of SOURCE)",
    )  # fmt: skip
    return arguments.run(import_corpus, argv)


def columns(text: str) -> dict[str, str]:
    """Return the pairs of KEY=COLUMN,…; reject wrong keys, and a second one of a key."""
    from asrkit.data.corpora.table import FIELDS

    found: dict[str, str] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name not in FIELDS or name in found or not value:
            expected = f"must be KEY=COLUMN,… with keys {', '.join(FIELDS)}, each once"
            raise argparse.ArgumentTypeError(f"{expected}, got {shown(part)}")
        found[name] = value
    return found


def import_corpus(options: argparse.Namespace) -> int:
    from asrkit.data.corpora.registry import READERS, kind_of
    from asrkit.data.corpora.rows import rows_of
    from asrkit.data.corpora.source import CorpusError, Omitted
    from asrkit.data.splits import divide, from_folder, totals, write_splits

    omitted, output = Omitted(), Path(options.output)
    paths = [Path(each) for each in options.sources]
    kinds = [kind_of(path, options.kind) for path in paths]
    refuse_existing(output)
    with new_folder(output) as folder:
        sources = [source_of(*pair, folder, options) for pair in zip(paths, kinds, strict=True)]
        values = chain.from_iterable(
            READERS[kind](source, omitted) for kind, source in zip(kinds, sources, strict=True)
        )
        rows = rows_of(values, omitted)
        for line in omitted.lines():
            complain(PROGRAM, line)
        if not rows:
            named = ", ".join(map(shown, paths))
            raise CorpusError(f"{named}: no utterance can be used; nothing is written")
        if options.dev is not None and any(row.get("split") == "dev" for row in rows):
            complain(PROGRAM, "--dev has no effect: the corpus has its own dev, which is kept")
        share = DEV if options.dev is None else options.dev
        rows = [row | {"audio": from_folder(row["audio"], folder)} for row in rows]
        splits = divide(rows, share, partial(complain, PROGRAM))
        write_splits(splits, folder)
    found = ", ".join(dict.fromkeys(kinds))
    print(f"{output} ({found}): " + "; ".join(f"{name} {totals(splits[name])}" for name in splits))
    return 1 if omitted.counts else 0


def source_of(path: Path, kind: str, folder: Path, options: argparse.Namespace) -> Source:
    """Return a corpus with its options; reject options that have no effect on its kind."""
    from asrkit.data.corpora.registry import OPTIONS
    from asrkit.data.corpora.source import Source
    from asrkit.data.splits import split_of

    for name, kinds in OPTIONS.items():
        if getattr(options, name) is not None and kind not in kinds:
            flag, known = name.replace("_", "-"), ", ".join(kinds)
            raise UserError(f"--{flag} has no effect on the kind {kind}, only on {known}")
    if options.audio_root and not options.audio_root.is_dir():
        raise UserError(f"--audio-root {shown(options.audio_root)} is not a folder")
    part = split_of(Path(path.name, path.parent.name)) if len(options.sources) > 1 else None
    return Source(path, options.audio_root, options.columns or {}, folder / "audio", part)
