"""Compare what asrkit reads of audio files with what the ffmpeg program reads of them.

    python -m tools.check_inputs recordings/ call.wav
    python -m tools.check_inputs --make /tmp/files --speech speech.wav     # kinds that people have

A file's row has its seconds by ffmpeg, by decoding, in training and by `asrkit data check`, the
start of the first sound by decoding and by ffmpeg, and the warnings. The exit status is 1 if asrkit
reads a file in another way than ffmpeg without a warning, or if its readers differ.
"""

import argparse
import logging
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from asrkit import audio
from asrkit.cli import table
from asrkit.data.checks.facts import Facts
from asrkit.data.checks.measure import inspect
from asrkit.data.recording import Recording
from asrkit.data.recordings import load
from tools.people_files import make

TOLERANCE = 0.1  # seconds: encoders add some, and time stamps are rounded
SOUND = 0.2  # share of the largest sample from which a sample is the first sound
# By these formats' own times; ffmpeg lets all others begin at their first sample.
FROM_ZERO = ("matroska", "mov", "avi", "flv", "asf", "nut", "mxf")


class Reading(NamedTuple):
    """A file as one reader sees it."""

    seconds: float | None = None  # None: refused
    said: tuple[str, ...] = ()
    start: float | None = None  # of the first sound, seconds


def by_ffmpeg(path: Path, folder: Path) -> Reading:
    """Read a wav file of what ffmpeg plays, each sample at its time."""
    probe = subprocess.run(
        ["ffprobe", "-v", "error", "-show_entries", "format=format_name", "-of", "csv=p=0", path],
        capture_output=True, text=True,
    ).stdout  # fmt: skip
    keep = ["-copyts"] if probe.strip().strip('"').split(",")[0] in FROM_ZERO else []
    sink = folder / "rendered.wav"
    sink.unlink(missing_ok=True)
    subprocess.run(
        ["ffmpeg", "-nostdin", "-v", "error", *keep, "-i", path, "-vn", "-sn", "-dn", "-af",
         "aresample=async=1:first_pts=0", "-c:a", "pcm_f32le", sink], capture_output=True,
    )  # fmt: skip
    if not sink.exists() or sink.stat().st_size <= 200:
        return Reading()
    return read(sink, lambda: audio.load(sink))


def read(path: Path, samples_of: Callable[[], np.ndarray]) -> Reading:
    """Call a reader of 16 kHz; collect its warnings about the file, or its refusal."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("asrkit").addHandler(handler)
    seconds = start = None
    try:
        samples = samples_of()
        seconds = len(samples) / audio.SAMPLE_RATE
        loud = np.abs(samples) > SOUND * np.abs(samples).max(initial=0.0)
        start = float(loud.argmax()) / audio.SAMPLE_RATE
    except audio.AudioError as error:
        lines.append(str(error))
    finally:
        logging.getLogger("asrkit").removeHandler(handler)
    return Reading(seconds, tuple(each.removeprefix(f"{path} ") for each in lines), start)


def checked(recording: Recording) -> Reading:
    """Return what `asrkit data check` knows of a line with the file."""
    facts = inspect(Facts("", 1, recording))
    lines = [each for each in (facts.problem, *facts.notes) if each]
    return Reading(facts.seconds, tuple(e.removeprefix(f"{recording.audio} ") for e in lines))


def fault_of(ffmpeg: Reading, decode: Reading, *others: Reading) -> str:
    """Return what is wrong with the readings of a file; "" if they agree, or a line says why."""
    faults = []
    if any(differ(each.seconds, decode.seconds) for each in others):
        faults.append("our readers differ")
    if any(bool(each.said) != bool(decode.said) for each in others):
        faults.append("not said by all")
    if not decode.said and differ(ffmpeg.seconds, decode.seconds):
        faults.append("not ffmpeg's length")
    elif not decode.said and differ(ffmpeg.start, decode.start):
        faults.append("not the container's time")
    return "; ".join(faults)


def differ(one: float | None, two: float | None) -> bool:
    return (one is None) != (two is None) or abs((one or 0.0) - (two or 0.0)) > TOLERANCE


def shown(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="files, or folders of them")
    parser.add_argument("--make", metavar="OUT", help="write files of many kinds there first")
    parser.add_argument("--speech", help="speech to write into them: a wav file of some seconds")
    options = parser.parse_args()
    if bool(options.make) != bool(options.speech) or not (options.make or options.files):
        parser.error("name files, or --make OUT with --speech SPEECH.wav")
    paths = make(options.speech, Path(options.make)) if options.make else []
    for given in map(Path, options.files):
        paths += sorted(p for p in given.iterdir() if p.is_file()) if given.is_dir() else [given]
    faults = 0
    readers = ("ffmpeg", "decode", "training", "check")
    print(table.markdown(["file", *readers, "first sound", "said", "fault"], []))
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            line = Recording(id=str(path), audio=str(path), text="x")
            readings = [
                by_ffmpeg(path, Path(folder)), read(path, lambda path=path: audio.load(path)),
                read(path, lambda line=line: load(line.measured())), checked(line),
            ]  # fmt: skip
            fault = fault_of(*readings)
            faults += bool(fault)
            starts = " of ".join(shown(each.start) for each in reversed(readings[:2]))
            said = " / ".join(dict.fromkeys(line for each in readings[1:] for line in each.said))
            lengths = (shown(each.seconds) for each in readings)
            print(table.row([path.name, *lengths, starts, said, fault]))
    print(f"\n{len(paths)} files, {faults} disagree")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
