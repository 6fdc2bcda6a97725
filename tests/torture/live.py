"""Streams of odd numbers."""

import json
import random
from functools import cache
from pathlib import Path

import numpy as np

import asrkit
from asrkit.errors import UserError
from asrkit.runtime import Recognizer
from tests.torture.cage import Part

KEPT = Path(__file__).parents[1] / "kept"
SIGNALS = ("noise", "silence", "dc", "square", "nan", "inf", "denormal", "loud", "int16")
RATES = (1, 7, 999, 1000, 7999, 8000, 11025, 16000, 22050, 44100, 48000, 96000, 384000, 768000)
MOST_SECONDS = 300  # 1000 s of audio, in packets and as a whole, take 14 s of CPU time
MOST_SAMPLES = 1_000_000


@cache
def recognizer(kind: str) -> Recognizer:
    """Return a small recogniser, with or without segments, a second pass and prefix beam search."""
    path = KEPT / "models" / "exported.safetensors"
    if kind == "plain":
        return asrkit.load(path, backend="eager")
    ends = asrkit.Endpointer(pause_ms=100)
    return asrkit.load(
        path, backend="eager", endpointer=ends, second_pass="full", search="prefix_beam"
    )


def number_seeds(folder: Path) -> None:
    draw = random.Random(0)
    for number in range(60):
        values = {
            "signal": SIGNALS[number % len(SIGNALS)], "rate": RATES[number % len(RATES)],
            "channels": draw.choice([1, 1, 2, 64]), "seconds": draw.choice([0.0, 0.01, 0.5, 3.0]),
            "packet": draw.choice([1, 7, 160, 100_000]),
            "kind": draw.choice(["plain", "segments"]),
        }  # fmt: skip
        (folder / f"{number:02}.json").write_text(json.dumps(values))


def samples_of(signal_name: str, shape: tuple[int, int]) -> np.ndarray:
    """Return samples (n, channels) of a kind."""
    found = (0.1 * np.random.default_rng(0).standard_normal(shape)).astype(np.float32)
    middle = slice(len(found) // 2, len(found) // 2 + 3)
    if signal_name in ("nan", "inf"):
        found[middle] = float(signal_name)
    elif signal_name == "square":
        found = np.sign(found)
    elif signal_name == "int16":
        found = (found * 32767).astype(np.int16)
    return found * {"silence": 0, "denormal": 1e-40, "loud": 999}.get(signal_name, 1) + (
        np.float32(0.9) if signal_name == "dc" else found.dtype.type(0)
    )


def numbers(path: Path, said: list[str]) -> str:
    """Stream odd samples in packets; the text is that of the whole, and every number is finite."""
    try:
        spec = json.loads(path.read_bytes())
        n, channels = int(spec["seconds"] * spec["rate"]), int(spec["channels"])
        step, rate, kind = int(spec["packet"]), spec["rate"], str(spec["kind"])
        if max(n, 1) * channels > MOST_SAMPLES or channels < 1 or step < 1 or n / step > 50_000:
            return ""
        if spec["seconds"] > MOST_SECONDS:
            return ""
        samples = samples_of(str(spec["signal"]), (n, channels))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, MemoryError):
        return ""
    loaded = recognizer(kind)
    try:
        whole = loaded.transcribe(samples, rate)
    except UserError as error:
        refused = str(error)
    else:
        refused = ""
    try:
        session = loaded.start(sample_rate=rate)
        for first in range(0, max(n, 1), step):  # an empty recording is one empty packet
            session.accept(samples[first : first + step])
        found = session.finish()
    except UserError as error:
        return "" if refused else f"refused in packets: {error}"
    if refused:
        return f"accepted in packets: {refused}"
    if found.text != whole.text:
        return f"another text: {found.text!r:.80} in packets, {whole.text!r:.80} as a whole"
    times = [t for word in found.words for t in (word.start, word.end, word.confidence)]
    return "" if np.isfinite(times).all() else "a number of a word is not finite"


NUMBERS = Part(number_seeds, numbers, 2048)
