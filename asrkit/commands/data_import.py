"""Turn a corpus of another form into manifests: asrkit data import KIND SOURCE --output DIR"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from asrkit.atomic_write import replacing
from asrkit.cli.parser import Parser, complain, real
from asrkit.cli.progress import bar
from asrkit.data.corpora import FORMER, KINDS
from asrkit.errors import shown

if TYPE_CHECKING:
    from asrkit.data.corpora.entry import Entry, Ids, Source
    from asrkit.data.splits import Row, Splits


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit data import", __doc__,
        "asrkit data import folder recordings --output corpus\n"
        "  asrkit data import table list.csv --columns audio=f,text=t --output corpus\n"
        "  asrkit data import table en/train.tsv en/dev.tsv en/test.tsv --output corpus\n\n"
        "kinds:\n" + "\n".join(f"  {name:12}{KINDS[name]}" for name in KINDS) + "\n\n"
        "exit status: 0 imported, 1 imported but something was left out, 2 nothing was imported",
    )  # fmt: skip
    arguments.add_argument(
        "kind", type=kind, choices=["auto", *KINDS], metavar="KIND",
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
        "--columns", metavar="KEY=COLUMN,…",
        help="columns of a table, by name or from 1: audio, text, speaker, id, start, duration, "
        "end, channel (default: by their usual names)",
    )  # fmt: skip
    arguments.add_argument(
        "--channels", metavar="SPEAKER=CHANNEL,…",
        help="channel of each speaker in files with several, from 0: agent=0,customer=1 (default: "
        "the channel that the corpus states, or the mean of all)",
    )  # fmt: skip
    arguments.add_argument(
        "--audio-root", metavar="FOLDER",
        help="folder in which relative paths of audio begin (default: that of SOURCE)",
    )  # fmt: skip
    arguments.add_argument(
        "--speaker-pattern",
        metavar="REGEX",
        help="regular expression that finds the speaker in the path of a recording; its first "
        "group, if any (default: the speaker that the corpus states)",
    )
    arguments.add_argument(
        "--copy", action="store_true",
        help="copy the audio to DIR/audio (default: it stays where it is)",
    )  # fmt: skip
    arguments.add_argument(
        "--force", action="store_true", help="write into a folder that is not empty"
    )
    return arguments.run(import_corpus, argv)


def kind(name: str) -> str:
    """Return the name of a kind; reject one of a former version."""
    if name in FORMER:
        raise argparse.ArgumentTypeError(f"{name} is no longer a kind: use {FORMER[name]}")
    return name


PROGRAM = "asrkit data import"
DEV = 0.1  # share of the hours for dev
OPTIONS = ("columns", "audio_root")  # that only some kinds have


def import_corpus(options: argparse.Namespace) -> int:
    from asrkit.data.corpora.entry import CorpusError, Ids, Omitted
    from asrkit.data.corpora.measure import rows_of
    from asrkit.data.corpora.registry import READERS, kind_of
    from asrkit.data.splits import divide, totals, with_roles

    output, omitted = Path(options.output), Omitted()
    pattern = options.speaker_pattern and compiled(options.speaker_pattern)
    channels = channels_of(options.channels or "")
    paths = [Path(each) for each in options.sources]
    kinds = [kind_of(path, options.kind) for path in paths]
    ids = Ids()
    sources = [source_of(path, kind, ids, options) for path, kind in zip(paths, kinds, strict=True)]
    refuse_existing(output, options.force)
    entries: Iterator[Entry] = chain.from_iterable(
        spoken_by(READERS[kind].read(source, omitted), source.path, pattern)
        for kind, source in zip(kinds, sources, strict=True)
    )
    unmet = set(channels)
    entries = (on_channel(entry, channels, unmet) for entry in entries)
    rows = rows_of(entries, omitted, os.cpu_count() or 1)
    for line in omitted.lines():
        complain(PROGRAM, line)
    if not rows:
        named = ", ".join(map(shown, paths))
        raise CorpusError(f"{named}: no utterance can be used; nothing is written")
    if unmet:
        raise CorpusError(f"--channels {shown(min(unmet))}: no utterance has this speaker")
    if options.copy:
        copy_audio(rows, output / "audio")
    if options.dev is not None and any(row.get("split") == "dev" for row in rows):
        complain(PROGRAM, "--dev has no effect: the corpus has its own dev, which is kept")
    share = DEV if options.dev is None else options.dev
    warn = partial(complain, PROGRAM)
    splits = divide(with_roles(rows, warn), share, warn)
    write(splits, output)
    found = ", ".join(dict.fromkeys(kinds))
    print(f"{output} ({found}): " + "; ".join(f"{name} {totals(splits[name])}" for name in splits))
    return 1 if omitted.total else 0


def source_of(path: Path, kind: str, ids: Ids, options: argparse.Namespace) -> Source:
    """Return a corpus with its options; reject options that have no effect on its kind."""
    from asrkit.data.corpora.entry import CorpusError, Source
    from asrkit.data.corpora.registry import READERS
    from asrkit.data.splits import split_of

    for name in OPTIONS:
        if getattr(options, name) is not None and name not in READERS[kind].options:
            known = ", ".join(each for each in READERS if name in READERS[each].options)
            flag = name.replace("_", "-")
            raise CorpusError(f"--{flag} has no effect on the kind {kind}, only on {known}")
    root = options.audio_root and Path(options.audio_root)
    if root and not root.is_dir():
        raise CorpusError(f"--audio-root {shown(root)} is not a folder")
    columns, audio = columns_of(options.columns or ""), Path(options.output) / "audio"
    part = split_of(Path(path.name, path.parent.name)) if len(options.sources) > 1 else None
    return Source(path, ids, root, columns, audio, part)


def columns_of(text: str) -> dict[str, str]:
    from asrkit.data.corpora.fields import FIELDS

    expected = f"--columns must be KEY=COLUMN,… with keys {', '.join(FIELDS)}"
    return pairs_of(text, expected, lambda field, name: field in FIELDS and name != "")


def channels_of(text: str) -> dict[str, int]:
    from asrkit.audio.samples import MAX_CHANNELS

    expected = f"--channels must be SPEAKER=CHANNEL,… with channels from 0 to {MAX_CHANNELS - 1}"
    found = pairs_of(
        text, expected, lambda _, value: value.isdecimal() and int(value) < MAX_CHANNELS
    )
    return {speaker: int(value) for speaker, value in found.items()}


def pairs_of(text: str, expected: str, fits: Callable[[str, str], bool]) -> dict[str, str]:
    """Return the pairs of NAME=VALUE,…; reject wrong ones, and a second one of a name."""
    from asrkit.data.corpora.entry import CorpusError

    found: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if not name or name in found or not fits(name, value):
            raise CorpusError(f"{expected}, each once, got {shown(part)}")
        found[name] = value
    return found


def on_channel(entry: Entry, channels: Mapping[str, int], unmet: set[str]) -> Entry:
    """Return the entry with the channel of its speaker; remove the speaker from `unmet`."""
    speaker = " ".join((entry.speaker or "").split())
    unmet.discard(speaker)
    return entry._replace(channel=channels.get(speaker, entry.channel))


def refuse_existing(output: Path, force: bool) -> None:
    """Reject an output folder with content, unless it may be overwritten."""
    from asrkit.data.corpora.entry import CorpusError

    if output.exists() and not output.is_dir():
        raise CorpusError(f"{shown(output)} is not a folder: name another --output")
    if output.is_dir() and not force and next(output.iterdir(), None) is not None:
        raise CorpusError(
            f"{shown(output)} is not empty: name a new folder, or use --force to replace its "
            "manifests"
        )


def compiled(pattern: str) -> re.Pattern[str]:
    from asrkit.data.corpora.entry import CorpusError

    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise CorpusError(
            f"--speaker-pattern must be a regular expression, got {shown(pattern)}: {error}"
        ) from None


def spoken_by(entries: Iterable[Entry], folder: Path, pattern: re.Pattern[str]) -> Iterator[Entry]:
    """Yield the entries with the speakers that a pattern finds in the paths of their audio.

    The first group of the pattern is the speaker, or the whole match.
    """
    if pattern is None:
        yield from entries
        return
    for entry in entries:
        place = entry.audio
        below = place.relative_to(folder) if place.is_relative_to(folder) else place
        match = pattern.search(below.with_suffix("").as_posix())
        yield entry._replace(speaker=match and match[min(1, pattern.groups)])


def copy_audio(rows: list[Row], folder: Path) -> None:
    """Copy the audio of all rows into a folder, each file once; change the paths of the rows."""
    from asrkit.data.corpora.entry import Ids

    ids, copies = Ids(), dict[str, str]()
    for row in bar(rows, "copies", "file", len(rows)):
        path = Path(row["audio"])
        if str(path) not in copies and not path.is_relative_to(folder.absolute()):
            target = folder.absolute() / f"{ids(path)}{path.suffix}"
            with replacing(target) as temporary:
                shutil.copyfile(path, temporary)
            copies[str(path)] = str(target)
        row["audio"] = copies.get(str(path), str(path))


def write(splits: Splits, output: Path) -> None:
    """Write the manifests, with paths relative to the folder for audio in or beside it."""
    from asrkit.data.splits import NAMES, from_folder, write_splits

    output.mkdir(parents=True, exist_ok=True)
    moved = {
        name: [row | {"audio": from_folder(row["audio"], output)} for row in rows]
        for name, rows in splits.items()
    }
    write_splits(moved, output)
    old = [f"{name}.jsonl" for name in NAMES if name not in splits]
    for name in (each for each in old if (output / each).exists()):
        print(f"{PROGRAM}: {shown(output / name)} is of another import", file=sys.stderr)
