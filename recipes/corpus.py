"""Functions of all recipes: the command line, unpacking archives safely, checked manifests."""

import argparse
import json
import os
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

import soundfile
from tqdm import tqdm

from asrkit.atomic_write import new_folder, remove_folder, replacing
from asrkit.data.splits import write_splits

KEYS = ("id", "audio", "duration", "text", "speaker")
Utterance = dict[str, Any]  # one line of a manifest; its audio is an absolute path
Splits = dict[str, list[Utterance]]
Reader = Callable[[Path, Path], Splits]  # of the path found for the marker, and the output folder
Download = Callable[[str, Path], object]  # from a URL into a folder
JOBS = min(8, os.cpu_count() or 1)  # that read headers side by side


class RecipeError(Exception):
    """A user's mistake, or a failed download; printed as one line, without a traceback."""


@contextmanager
def explain(problem: str, remedy: str) -> Iterator[None]:
    """Turn any exception of the block into a RecipeError of one line that says what to do."""
    try:
        yield
    except Exception as error:  # archives, servers and audio raise a dozen unrelated types
        reason = str(error) or type(error).__name__
        raise RecipeError(f"{problem} ({reason}): {remedy}") from error


def run(name: str, url: str, marker: str, read: Reader, argv: Sequence[str] | None = None) -> int:
    """Prepare a corpus of one archive; returns the exit code. Only the original has a `marker`."""
    return prepare(name, parse(command_line(name, url), argv), marker, fetch_and_unpack, read)


def command_line(name: str, url: str, example: str | None = None) -> argparse.ArgumentParser:
    """The options of every recipe; `example` is those of the command that --help shows."""
    script, about = f"recipes/{name}/prepare.py", f"Write the manifests of {name}."
    example = example or f"--output-dir data/{name} --download"
    parser = argparse.ArgumentParser(
        script, description=about, epilog=f"example: python {script} {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--output-dir", type=Path, required=True, help="folder of the manifests")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data-dir", type=Path, help="the unpacked corpus, or a prepared folder")
    source.add_argument("--download", action="store_true", help="fetch the public archive")
    parser.add_argument("--url", default=url, help="URL or path to fetch (%(default)s)")
    return parser


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """The options given; a mistake in them ends the program."""
    args = parser.parse_args(argv)
    if args.data_dir and args.url != parser.get_default("url"):
        parser.error(f"--url {args.url} goes with --download: give that in place of --data-dir")
    return args


def prepare(
    name: str,
    args: argparse.Namespace,
    marker: str,
    download: Download,
    read: Reader,
    arrange: Callable[[Splits], Splits] = lambda splits: splits,
) -> int:
    """Find or fetch a corpus and write its manifests; returns the exit code.

    Args:
        name: name of the recipe's folder.
        args: parsed arguments of `command_line`.
        marker: a path that only the original has, in the folder or in one of its folders.
        download: function that --download calls.
        read: the original to utterances.
        arrange: the splits that were read to those that are written.
    """
    output = args.output_dir.resolve()
    folder = (args.data_dir or output / "downloads" / name).resolve()
    try:
        if args.download:
            download(args.url if "://" in args.url else Path(args.url).resolve().as_uri(), folder)
        found = [*sorted(folder.glob(marker)), *sorted(folder.glob(f"*/{marker}"))]
        prepared = (folder / "train.jsonl").is_file()
        if not prepared and not found:
            raise RecipeError(f"{folder} has neither {marker} nor train.jsonl: give one that has")
        splits = read_prepared(folder) if prepared else read(found[0], output)
        write_manifests(arrange(splits), output)
    except (RecipeError, OSError) as error:
        return refused(name, error)
    return 0


def refused(name: str, error: Exception, script: str = "prepare") -> int:
    """Print an error in one line; returns the exit code."""
    print(f"recipes/{name}/{script}.py: error: {' '.join(str(error).split())}", file=sys.stderr)
    return 2


def fetch_and_unpack(url: str, folder: Path) -> None:
    """Download and unpack a corpus that is one archive."""
    unpack(fetch(url, folder.parent), folder)


def fetch(url: str, folder: Path) -> Path:
    """Download an archive into `folder`, unless it is there; returns its path."""
    archive = folder / Path(unquote(urlsplit(url).path)).name
    if archive.is_file():
        print(f"using {archive}, fetched before; delete it to fetch it again")
        return archive
    folder.mkdir(parents=True, exist_ok=True)
    remedy = "check the connection, or name another copy with --url"
    with (
        explain(f"cannot fetch {url}", remedy),
        replacing(archive) as partial,
        urlopen(url, timeout=60) as reply,
    ):
        size = int(reply.headers.get("Content-Length") or 0)
        bar = {"total": size or None, "desc": archive.name, "disable": None}  # on terminals
        with partial.open("wb") as file, tqdm.wrapattr(file, "write", **bar) as out:
            shutil.copyfileobj(reply, out)
        # A broken connection looks like the end of the file, except by the size.
        if size and partial.stat().st_size != size:
            raise EOFError(f"got {partial.stat().st_size} of {size} bytes")
    return archive


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive as `folder`; refuses archives with paths that lead out of it."""
    remedy = "delete it and fetch a good copy"
    with explain(f"cannot unpack {archive}", remedy), new_folder(folder) as fresh:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as pack:
                for name in pack.namelist():  # zipfile itself would quietly write ../x as x
                    if not (fresh / name).resolve().is_relative_to(fresh):
                        raise ValueError(f"{name} would be outside the destination")
                pack.extractall(fresh)
        else:
            with strict_tarfile().open(archive) as pack:
                pack.extractall(fresh, filter="data")
        if folder.exists():
            remove_folder(folder)


def strict_tarfile() -> Any:
    """tarfile, or its backport, because it has no filters before Python 3.11.4 (3.10.12)."""
    if hasattr(tarfile, "data_filter"):
        return tarfile
    from backports import tarfile as backport

    return backport


@contextmanager
def fetching(url: str, folder: Path) -> Iterator[None]:
    """A context for lhotse's downloads: strict unpacking, and errors that say what to do."""
    # lhotse's own check is of names: a link could lead out of the folder.
    strict = strict_tarfile()
    strict.TarFile.extraction_filter = staticmethod(strict.data_filter)
    tarfile.open = strict.open  # which lhotse calls
    damaged = f"delete a damaged archive in {folder}"
    remedy = f"run this again to resume, {damaged}, or name another copy with --url"
    with explain(f"cannot fetch from {url}", remedy):
        yield


def from_lhotse(manifests: Mapping[str, Any]) -> list[Utterance]:
    """The utterances of lhotse's recordings and supervisions, one each, sorted by id."""
    recordings = {recording.id: recording for recording in manifests["recordings"]}
    rows: list[Utterance] = []
    for segment in sorted(manifests["supervisions"], key=lambda segment: segment.id):
        recording = recordings[segment.recording_id]
        rows.append(
            {
                "id": segment.id,
                "audio": Path(recording.sources[0].source),
                "duration": recording.num_samples / recording.sampling_rate,
                "text": segment.text,
                "speaker": segment.speaker or "unknown",
                # With these, a training does not read the header.
                "sample_rate": recording.sampling_rate,
                "num_channels": recording.num_channels,
            }
        )
    return rows


def check_complete(source: Path, found: int, expected: int) -> None:
    """Refuse an incomplete corpus, from which lhotse left out utterances without audio."""
    if found < expected:
        missing = f"the audio of {expected - found} of its {expected} utterances"
        raise RecipeError(f"{source} lacks {missing}: get a whole copy of the corpus")


def audio_seconds(path: Path) -> float:
    """The duration of an audio file, by its header."""
    with explain(f"cannot read audio file {path}", "get a whole copy of the corpus"):
        return round(soundfile.info(path).duration, 4)


def read_prepared(folder: Path) -> Splits:
    """The utterances of a prepared folder, each checked against its audio file."""
    splits: Splits = {}
    for path in [folder / "train.jsonl", folder / "dev.jsonl", *folder.glob("test.jsonl")]:
        rows = splits[path.stem] = []
        lines = path.read_bytes().splitlines() if path.is_file() else []
        for number, line in enumerate(lines, 1):
            with explain(f"{path}:{number}", f"give one JSON object with {', '.join(KEYS)}"):
                row = {key: json.loads(line)[key] for key in KEYS}
                # Fails unless all are strings that a manifest can hold.
                "".join((row["id"], row["text"], row["speaker"])).encode()
                row |= {"audio": folder / row["audio"], "duration": float(row["duration"])}
            seconds = audio_seconds(row["audio"])
            if not abs(row["duration"] - seconds) <= 0.02:  # written so that NaN is refused
                raise RecipeError(f"{path}:{number}: duration {row['duration']}, not {seconds}")
            rows.append(row)
    return splits


def write_manifests(splits: Splits, folder: Path) -> None:
    """Check ids and texts, write all manifests or none, and print their sizes."""
    seen: set[str] = set()
    for split, rows in splits.items():
        if not rows:
            raise RecipeError(f"the {split} split is empty or missing: get a whole copy")
        for row in rows:
            if row["id"] in seen or not row["text"].strip():
                raise RecipeError(f"{split}: id {row['id']} comes twice or has no text: correct it")
            seen.add(row["id"])
    write_splits(splits, folder)
    width = max(map(len, ["split", *splits]))
    print(f"{'split':{width}}  utterances   hours  speakers")
    for split, rows in splits.items():
        hours = sum(row["duration"] for row in rows) / 3600
        speakers = len({row["speaker"] for row in rows})
        print(f"{split:{width}}{len(rows):12}{hours:8.3f}{speakers:10}")
