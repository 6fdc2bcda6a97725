"""Recordings of every format that people have; ffmpeg's own decoding is the truth of the length."""

import io
import subprocess
from pathlib import Path

from asrkit import audio
from tests.torture.cage import Part
from tools.people_files import make

SPEECH = Path(__file__).parents[1] / "kept" / "speech" / "command.flac"
LOSS = 0.2  # seconds that ffmpeg may have more, without a line: decoders differ in padding
MOST_SECONDS = 120  # of ffmpeg's output


def seeds(folder: Path) -> None:
    """Write recordings with ffmpeg, sox and lame, where installed."""
    speech = folder.parent / "speech.wav"  # beside the seeds
    subprocess.run(["ffmpeg", "-v", "error", "-y", "-i", SPEECH, speech], check=True)
    make(str(speech), folder)
    for path in folder.iterdir():
        if path.stat().st_size > 1 << 20 or path.is_dir():  # long films
            path.unlink()


def read(path: Path, said: list[str]) -> str:
    """Read a recording as blocks, as a whole and from memory; compare the lengths."""
    found = audio.info(path)
    length = sum(len(block) for block, _ in audio.blocks(path, 1.0, channel="split"))
    problems = list(said)
    if length != found.num_samples and not problems:
        return f"info has another length: {found.num_samples} samples, blocks {length}"
    samples, rate = audio.read(path, duration=60.0)
    if abs(len(samples) - min(length, 60 * rate)) > 1:
        return f"read has another length: {len(samples)} samples, blocks {length}"
    again = sum(len(block) for block, _ in audio.blocks(io.BytesIO(path.read_bytes()), 1.0))
    if again != length:
        return f"memory has another length: {again} samples, the file {length}"
    if not problems and (truth := by_ffmpeg(path)) > length / rate + LOSS:
        return f"lost without a word: {length / rate:.2f} s of {truth:.2f}"
    return ""


def by_ffmpeg(path: Path) -> float:
    """Return the seconds that ffmpeg decodes of a file; 0 if it decodes nothing."""
    done = subprocess.run(
        ["ffmpeg", "-nostdin", "-v", "quiet", "-protocol_whitelist", "file,pipe", "-i", path,
         "-map", "0:a:0", "-ar", "8000", "-ac", "1", "-f", "u8", "-t", str(MOST_SECONDS), "-"],
        capture_output=True, timeout=30,
    )  # fmt: skip
    return len(done.stdout) / 8000


AUDIO = Part(seeds, read, memory_mb=1536)
