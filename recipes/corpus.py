"""What the recipes share: the command line, safe archives, and manifests that were checked."""

import argparse
import json
import os
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

import soundfile
from tqdm import tqdm

KEYS = ("id", "audio", "duration", "text", "speaker")
Utterance = dict[str, Any]  # one line of a manifest; its audio is an absolute path
Splits = dict[str, list[Utterance]]
Reader = Callable[[Path, Path], Splits]  # of the path found for the marker, and the output folder


class RecipeError(Exception):
    """A mistake the user can put right; shown as one line, without a traceback."""


@contextmanager
def explain(problem: str, remedy: str) -> Iterator[None]:
    """Turn whatever fails in the block into one line that says what to do."""
    try:
        yield
    except Exception as error:  # archives, servers and audio raise a dozen unrelated types
        raise RecipeError(f"{problem} ({error}): {remedy}") from error


def run(name: str, url: str, marker: str, read: Reader, argv: Sequence[str] | None = None) -> int:
    """Prepare a corpus; returns the exit code. Only the original has a path `marker`."""
    script, about = f"recipes/{name}/prepare.py", f"Write the manifests of {name}."
    example = f"example: python {script} --output-dir data/{name} --download"
    parser = argparse.ArgumentParser(script, description=about, epilog=example)
    parser.add_argument("--output-dir", type=Path, required=True, help="where the manifests go")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data-dir", type=Path, help="the unpacked corpus, or a prepared folder")
    source.add_argument("--download", action="store_true", help="fetch the public archive")
    parser.add_argument("--url", default=url, help="archive to fetch, URL or path (%(default)s)")
    args = parser.parse_args(argv)
    if args.data_dir and args.url != url:
        parser.error(f"--url {args.url} goes with --download: give that in place of --data-dir")
    output = args.output_dir.resolve()
    folder = (args.data_dir or output / "downloads" / name).resolve()
    try:
        if args.download:
            unpack(fetch(args.url, folder.parent), folder)
        found = [*folder.glob(marker), *sorted(folder.glob(f"*/{marker}"))]
        prepared = (folder / "train.jsonl").is_file()
        if not prepared and not found:
            raise RecipeError(f"{folder} has neither {marker} nor train.jsonl: give one that has")
        write_manifests(read_prepared(folder) if prepared else read(found[0], output), output)
    except (RecipeError, OSError) as error:
        print(f"{script}: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def fetch(url: str, folder: Path) -> Path:
    """Download an archive into `folder`; one that was finished before is kept."""
    url = url if "://" in url else Path(url).resolve().as_uri()
    archive = folder / Path(unquote(urlsplit(url).path)).name
    partial = archive.with_name(f"{archive.name}.part")
    if archive.is_file():
        print(f"using {archive}, fetched before; delete it to fetch it again")
        return archive
    folder.mkdir(parents=True, exist_ok=True)
    with explain(f"cannot fetch {url}", "check the connection, or name another copy with --url"):
        with urlopen(url, timeout=60) as reply, partial.open("wb") as file:
            size = int(reply.headers.get("Content-Length") or 0)
            with tqdm.wrapattr(file, "write", total=size or None, desc=archive.name) as out:
                shutil.copyfileobj(reply, out)
        # A connection that breaks off looks like the end of the file: only the size tells.
        if size and partial.stat().st_size != size:
            raise EOFError(f"got {partial.stat().st_size} of {size} bytes")
        os.replace(partial, archive)
    return archive


def unpack(archive: Path, folder: Path) -> None:
    """Replace `folder` by what the archive holds; a path that leads out of it is refused."""
    fresh = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(fresh, ignore_errors=True)
    with explain(f"cannot unpack {archive}", "delete it and fetch a good copy"):
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as pack:
                for name in pack.namelist():  # zipfile itself would quietly write ../x as x
                    if not (fresh / name).resolve().is_relative_to(fresh):
                        raise ValueError(f"{name} would be outside the destination")
                pack.extractall(fresh)
        else:
            with tarfile.open(archive) as pack:
                pack.extractall(fresh, filter="data")
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(fresh, folder)


def audio_seconds(path: Path) -> float:
    """The duration by the header of an audio file."""
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
                "".join((row["id"], row["text"], row["speaker"]))  # fails unless all are strings
                row |= {"audio": folder / row["audio"], "duration": float(row["duration"])}
            seconds = audio_seconds(row["audio"])
            if not abs(row["duration"] - seconds) <= 0.02:  # in this form NaN is wrong, too
                raise RecipeError(f"{path}:{number}: duration {row['duration']}, not {seconds}")
            rows.append(row)
    return splits


def write_manifests(splits: Splits, folder: Path) -> None:
    """Check ids and texts, write all manifests or none, and print what they hold."""
    seen: set[str] = set()
    for split, rows in splits.items():
        if not rows:
            raise RecipeError(f"the {split} split is empty or missing: get a whole copy")
        for row in rows:
            if row["id"] in seen or not row["text"].strip():
                raise RecipeError(f"{split}: id {row['id']} comes twice or has no text: correct it")
            seen.add(row["id"])
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in splits.items():
        with (folder / f"{split}.jsonl.part").open("w", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
    print("split  utterances   hours  speakers")
    for split, rows in splits.items():
        os.replace(folder / f"{split}.jsonl.part", folder / f"{split}.jsonl")
        hours = sum(row["duration"] for row in rows) / 3600
        print(f"{split:5}{len(rows):12}{hours:8.3f}{len({row['speaker'] for row in rows}):10}")
