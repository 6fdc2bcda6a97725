"""Compare what asrkit reads of audio files with what the ffmpeg program reads of them.

    python tools/check_inputs.py recordings/ call.wav
    python tools/check_inputs.py --make /tmp/files --speech speech.wav     # kinds that people have

A file's row has its seconds by ffmpeg, by `asrkit decode`, by an upload to `asrkit serve`, in
training and by `asrkit data check`. It also has the start of the first word by decode, the same
start in a wav file that ffmpeg made with silence for missing audio, and the warnings. The exit
status is 1 if asrkit reads a file in another way than ffmpeg without a warning, or if the four
differ.
"""

import argparse
import logging
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import httpx
import torch
from callers import serving
from people_files import make

from asrkit.audio.samples import CANCELLED_DB
from asrkit.cli import table
from asrkit.data.checks.facts import Facts
from asrkit.data.checks.measure import inspect
from asrkit.data.checks.utterance_checks import mixed
from asrkit.data.recording import Recording
from asrkit.data.recordings import load

TOLERANCE = 0.1  # seconds: encoders add some, and time stamps are rounded
# By these formats' own times; ffmpeg lets all others begin at their first sample.
FROM_ZERO = ("matroska", "mov", "avi", "flv", "asf", "nut", "mxf")
READERS = ("ffmpeg", "decode", "upload", "training", "check")
LONGEST = 110  # letters of a message in the table
LIKE_SERVE = ("--endpoint-ms", "1000", "--second-pass", "full")  # what an upload gets


class Heard(NamedTuple):
    """The reading that one reader makes of a file."""

    seconds: float | None = None  # None: refused
    said: tuple[str, ...] = ()
    words: tuple[str, ...] | None = None
    first: float | None = None  # start of the first word, seconds

    @property
    def length(self) -> str:
        return "-" if self.seconds is None else f"{self.seconds:.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="files, or folders of them")
    parser.add_argument("--model", default="small-en-alnum", help="model (default small-en-alnum)")
    parser.add_argument("--make", metavar="OUT", help="write files of many kinds there first")
    parser.add_argument("--speech", help="speech to write into them: a wav file of some seconds")
    parser.add_argument("--only-faults", action="store_true", help="print rows that disagree")
    options = parser.parse_args()
    if bool(options.make) != bool(options.speech) or not (options.make or options.files):
        parser.error("name files, or --make OUT with --speech SPEECH.wav")
    for path in filter(None, [options.speech, *options.files]):
        if not Path(path).exists():
            parser.error(f"{path} does not exist")
    if not (shutil.which("ffmpeg") and shutil.which("ffprobe")):
        parser.error("ffmpeg and ffprobe are needed: install Debian's package ffmpeg")
    paths = make(options.speech, Path(options.make)) if options.make else []
    for given in map(Path, options.files):
        paths += sorted(p for p in given.iterdir() if p.is_file()) if given.is_dir() else [given]
    faults = 0
    print(table.head(["file", *READERS, "first word", "said", "fault"]))
    for path, heard in zip(paths, all_heard(paths, options.model), strict=True):
        fault = fault_of(heard)
        faults += bool(fault)
        if fault or not options.only_faults:
            print(row(path, heard, fault))
    print(f"\n{len(paths)} files, {faults} disagree")
    return 1 if faults else 0


def all_heard(paths: Sequence[Path], model: str) -> list[dict[str, Heard]]:
    """Return what each reader makes of every file."""
    with tempfile.TemporaryDirectory() as folder:
        # Numbered names, for recordings of one name may lie in several folders.
        links = [Path(folder) / f"{n:04}{path.suffix}" for n, path in enumerate(paths)]
        for link, path in zip(links, paths, strict=True):
            link.symlink_to(path.resolve())
        rendered = [by_ffmpeg(link) for link in links]
        found = {
            "ffmpeg": decoded(rendered, model),
            "decode": decoded(links, model),
            "upload": uploaded(links, model),
            "training": [trained(link) for link in links],
            "check": [checked(link) for link in links],
        }
    return [dict(zip(found, each, strict=True)) for each in zip(*found.values(), strict=True)]


def by_ffmpeg(path: Path) -> Path | None:
    """A wav file of what ffmpeg plays, each sample at its time; None if it plays nothing."""
    probe = subprocess.run(
        ["ffprobe", "-v", "error", "-show_entries", "format=format_name,start_time", "-of",
         "csv=p=0", path], capture_output=True, text=True,
    ).stdout  # fmt: skip
    keep = ["-copyts"] if probe.strip('"').split(",")[0] in FROM_ZERO else []
    sink = path.with_suffix(".rendered.wav")
    subprocess.run(
        ["ffmpeg", "-nostdin", "-v", "error", *keep, "-i", path, "-vn", "-sn", "-dn", "-af",
         "aresample=async=1:first_pts=0", "-c:a", "pcm_f32le", sink], capture_output=True,
    )  # fmt: skip
    return sink if sink.exists() and sink.stat().st_size > 200 else None


def decoded(paths: Sequence[Path | None], model: str) -> list[Heard]:
    """`asrkit decode`: its TextGrids hold the lengths."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "asrkit.decode", "--model", model, "--format", "textgrid",
             *LIKE_SERVE,
             "--output-dir", folder, *filter(None, paths)], capture_output=True, text=True,
        )  # fmt: skip
        found = []
        for path in paths:
            if path is None:
                found.append(Heard())
                continue
            said = said_of(str(path), done.stderr.splitlines())
            grid = Path(folder) / f"{path.stem}.textgrid"
            if not grid.exists():
                found.append(Heard(None, said))
                continue
            text = grid.read_text()
            words = re.findall(r'xmin = (\S+)\nxmax = \S+\ntext = "([^"]+)"', text)
            seconds = float(re.search(r"xmax = (\S+)", text)[1])
            first = float(words[0][0]) if words else None
            found.append(Heard(seconds, said, tuple(word for _, word in words), first))
        return found


def said_of(name: str, lines: Iterable[str]) -> tuple[str, ...]:
    """The messages about a file, without its name."""
    parts = (line.partition(name) for line in lines if name in line)
    return tuple(after.strip(": ").replace(name, "the file") for _, _, after in parts)


def uploaded(paths: Sequence[Path], model: str) -> list[Heard]:
    """POST /v1/audio/transcriptions to `asrkit serve`."""
    found = []
    command = ["-m", "asrkit", "serve", "--model", model, "--port", "0"]
    with serving(command) as (address, *_), httpx.Client(timeout=300) as client:
        url = address.replace("ws:", "http:").replace("stream", "audio/transcriptions")
        for path in paths:
            form = {"response_format": "verbose_json", "timestamp_granularities[]": "word"}
            got = client.post(url, files={"file": (path.name, path.read_bytes())}, data=form)
            if got.status_code != 200:
                said = got.json()["error"]["message"].removeprefix("the file ")
                found.append(Heard(None, (said,)))
                continue
            warning = got.headers.get("X-Asrkit-Warning", "")
            said = tuple(each for each in re.split("(?:^|; )the file ", warning) if each)
            words = got.json()["words"]
            first = words[0]["start"] if words else None
            heard = tuple(each["word"] for each in words)
            found.append(Heard(got.json()["duration"], said, heard, first))
    return found


def trained(path: Path) -> Heard:
    """The samples that training gets of a line with the file and a text."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("asrkit").addHandler(handler)
    seconds = None
    try:
        seconds = len(load(Recording(id=str(path), audio=str(path)).measured())) / 16000
    except Exception as error:
        lines.append(f"{path} {error}")
    finally:
        logging.getLogger("asrkit").removeHandler(handler)
    return Heard(seconds, tuple(dict.fromkeys(said_of(str(path), lines))))


def checked(path: Path) -> Heard:
    """Return what `asrkit data check` knows of a line with the file."""
    facts = inspect(Facts("", 1, Recording(id=str(path), audio=str(path), text="x")))
    is_cancelled = facts.signal and facts.signal.mix_db < CANCELLED_DB
    lines = [facts.problem, *facts.notes, is_cancelled and mixed(facts, None)]
    return Heard(facts.seconds, tuple(str(each).removeprefix(f"{path} ") for each in lines if each))


def fault_of(heard: dict[str, Heard]) -> str:
    """Return what is wrong with the readings of a file; "" if they agree, or a line says why."""
    ours = [heard[name] for name in READERS[1:]]
    ffmpeg, decode = heard["ffmpeg"], heard["decode"]
    faults = []
    if len({each.seconds is None for each in ours}) > 1 or differ([h.seconds for h in ours]):
        faults.append("our readers differ")
    if any(bool(each.said) != bool(decode.said) for each in ours):
        faults.append("not said by all: " + ", ".join(n for n in READERS[1:] if not heard[n].said))
    elif len({tuple(map(comparable, each.said)) for each in ours}) > 1:
        faults.append("said in other words")
    if (decode.words, decode.first) != (heard["upload"].words, heard["upload"].first):
        faults.append("upload has other words")
    if not decode.said:
        if differ([ffmpeg.seconds, decode.seconds]):
            faults.append("not ffmpeg's length")
        elif differ([ffmpeg.first, decode.first]):
            faults.append("not the container's time")
        elif ffmpeg.words != decode.words:
            faults.append("not ffmpeg's words")
    return "; ".join(faults)


def differ(values: Sequence[float | None]) -> bool:
    known = [each for each in values if each is not None]
    return 0 < len(known) < len(values) or (bool(known) and max(known) - min(known) > TOLERANCE)


def comparable(said: str) -> str:
    """A message without names of files."""
    return re.sub(r"\S*/\S+", "the file", said)


def row(path: Path, heard: dict[str, Heard], fault: str) -> str:
    """A file's row of the table."""
    firsts = [heard[name].first for name in ("decode", "ffmpeg")]
    times = " of ".join("-" if each is None else f"{each:.2f}" for each in firsts)
    said = list(dict.fromkeys(comparable(s) for name in READERS[1:] for s in heard[name].said))
    shown = " / ".join(said)
    shown = shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"
    cells = [path.name, *(heard[name].length for name in READERS), times, shown, fault]
    return table.row(cells)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
