"""Make a corpus of spoken digits and short commands with espeak-ng, ready to train on.

Every utterance is a function of (seed, split, index) alone, so the number of processes changes no
byte of the corpus.
"""

import _ctypes
import argparse
import ctypes
import functools
import importlib
import multiprocessing
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from asrkit.data.splits import write_splits
from asrkit.extras import pip_install

SAMPLE_RATE, ESPEAK_RATE = 16000, 22050
SPLITS = ("train", "dev", "test")

ACCENTS = ("en", "en-029", "en-gb-scotland", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-gb-x-rp",
           "en-us", "en-us-nyc")  # fmt: skip
# A variant listed here is used in its split only, in every accent; all others are for training.
# Variants that sound almost alike (f2 and f5, the ivens, adam and klatt6) stay on one side.
HELD_OUT = {
    "dev": ["belinda", "ed", "f2", "f5", "marcelo", "victor"],
    "test": ["Andy", "Annie", "Jacky", "boris", "f1", "f3", "m2", "m4", "pablo", "travis"],
}
# Robots, whispers, strong echoes and formants too odd to be understood. Reed and caleb draw on
# memory that espeak-ng does not initialise: they never sound the same twice. No blanks in names.
EXCLUDED = re.compile(
    "Alicia|Demonic|Lee|RicishayMax.*|.*Robot|announcer|croak|kaukovalta|robosoft.*|whisper.*"
    "|Reed|caleb|.* .*"
)

DIGITS = ["zero", "oh", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
COMMANDS = """stop, go, pause, play, mute, yes, no, help, cancel, repeat, turn left, turn right,
go back, go home, go forward, volume up, volume down, lights on, lights off, turn the lights on,
turn the lights off, open the door, shut the door, open the window, shut the window, next page,
last page, play some music, stop the music, take a picture, start recording, stop recording,
send a message, what time is it, set an alarm, call home, call back, speed up, slow down,
good morning, good night, try again""".replace("\n", " ").split(", ")
# Words before digits, and how many digits at least and at most follow them.
PREFIXES = (("call", 3, 6), ("dial", 3, 6), ("channel", 1, 2), ("page", 1, 3), ("room", 1, 3),
            ("volume", 1, 1), ("set timer", 1, 2))  # fmt: skip


class RecipeError(Exception):
    """A user's mistake; printed as one line, without a traceback."""


def draw_text(rng: np.random.Generator) -> str:
    """Half of the utterances are digits, a third commands, the rest both."""
    kind = rng.random()
    if kind < 0.35:
        return str(rng.choice(COMMANDS))
    words, low, high = PREFIXES[rng.integers(len(PREFIXES))] if kind < 0.5 else ("", 1, 7)
    return " ".join([*words.split(), *rng.choice(DIGITS, size=rng.integers(low, high + 1))])


def open_espeak() -> ctypes.CDLL:
    """Load espeak-ng, set to hand its samples to a callback before it returns."""
    import espeakng_loader

    data_path = espeakng_loader.get_data_path()
    library = ctypes.CDLL(espeakng_loader.get_library_path())
    synchronous, no_exit = 2, 0x8000
    if library.espeak_Initialize(synchronous, 0, os.fsencode(data_path), no_exit) != ESPEAK_RATE:
        raise RecipeError(f"espeak-ng cannot read its data in {data_path} (is the path too long?)")
    return library


def synthesise(text: str, voice: str, rng: np.random.Generator) -> np.ndarray:
    """Samples of a text at a random speed and pitch; none if espeak-ng lacks the voice."""
    blocks: list[bytes] = []

    def collect(samples: int | None, count: int, events: int | None) -> int:
        blocks.append(ctypes.string_at(samples, 2 * count) if samples else b"")
        return 0

    callback_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    callback = callback_type(collect)  # held here, or it is freed while espeak-ng calls it
    low, high = [110, 30, 20, 0], [191, 71, 81, 6]  # words a minute, %, %, 10 ms
    rate, pitch, pitch_range, word_gap = rng.integers(low, high).tolist()
    # espeak-ng carries phases, flutter and echo from one text to the next in static variables,
    # which only unloading resets; otherwise audio would depend on the texts before it.
    library = open_espeak()
    library.espeak_SetSynthCallback(callback)
    library.espeak_ng_SetRandSeed(ctypes.c_long(int(rng.integers(1, 2**31))))
    if library.espeak_SetVoiceByName(voice.encode()) == 0:
        volume = 50  # at the default of 100, some voices clip
        for name, value in {1: rate, 2: volume, 3: pitch, 4: pitch_range, 7: word_gap}.items():
            library.espeak_SetParameter(name, value, 0)
        utf8, data = 1, text.encode() + b"\0"
        library.espeak_Synth(data, ctypes.c_size_t(len(data)), 0, 0, 0, utf8, None, None)
    library.espeak_Terminate()
    getattr(_ctypes, "dlclose" if os.name == "posix" else "FreeLibrary")(library._handle)
    return np.frombuffer(b"".join(blocks), np.int16)


def find_voices() -> dict[str, list[str]]:
    """Return the voices of each split, without those that this espeak-ng lacks or garbles."""
    import espeakng_loader

    def is_sane(voice: str) -> bool:
        samples = synthesise("one two three", voice, np.random.default_rng(0))
        return 0.5 < len(samples) / ESPEAK_RATE < 3 and int(samples.max()) > 600

    folder = Path(espeakng_loader.get_data_path(), "voices", "!v")
    accents = [accent for accent in ACCENTS if is_sane(accent)]
    split_of = {variant: split for split, variants in HELD_OUT.items() for variant in variants}
    voices: dict[str, list[str]] = {split: [] for split in SPLITS}
    for variant in sorted(path.name for path in folder.glob("*")):
        if not EXCLUDED.fullmatch(variant) and is_sane(f"en+{variant}"):
            voices[split_of.get(variant, "train")] += [f"{accent}+{variant}" for accent in accents]
    if not all(voices.values()):
        raise RecipeError(f"too few voices in {folder}: try the latest espeakng-loader")
    return voices


def coloured_noise(count: int, slope: float, rng: np.random.Generator) -> np.ndarray:
    """Return noise of unit power whose spectrum falls as 1/f**slope: 0 is white, 1 pink."""
    spectrum = np.fft.rfft(rng.standard_normal(count))
    spectrum[1:] *= np.arange(1, len(spectrum)) ** (-slope / 2)
    spectrum[0] = 0
    noise: np.ndarray = np.fft.irfft(spectrum, count)
    return noise / float(noise.std())


def record(speech: np.ndarray, rate: float, rng: np.random.Generator) -> np.ndarray:
    """Return speech as a 16 kHz recording, with silence around it, a random gain and noise."""
    import soxr

    loud = np.flatnonzero(np.abs(speech) > 0.002)
    if len(loud) < 0.05 * rate:
        raise RecipeError("the synthesizer made no audio")
    speech = soxr.resample(speech[loud[0] : loud[-1] + 1], rate, SAMPLE_RATE)
    speech *= 10 ** (rng.uniform(-20, -2) / 20) / np.abs(speech).max()
    samples: np.ndarray = np.pad(speech, (rng.uniform(0.1, 0.5, size=2) * SAMPLE_RATE).astype(int))
    noise = coloured_noise(len(samples), rng.uniform(0, 1), rng)
    samples += noise * speech.std() * 10 ** (-rng.uniform(15, 45) / 20)
    return samples * min(1.0, 0.98 / float(np.abs(samples).max()))


def make_utterance(
    output_dir: Path, seed: int, voices: dict[str, list[str]], task: tuple[str, int]
) -> dict[str, Any]:
    """Write one recording, and return its line of the manifest."""
    import soundfile

    split, index = task
    rng = np.random.default_rng([seed, SPLITS.index(split), index])
    text, voice = draw_text(rng), voices[split][rng.integers(len(voices[split]))]
    name = f"digits-{split}-{index:05d}"
    audio = f"audio/{split}/{name}.flac"
    path = output_dir / audio
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        samples = record(synthesise(text, voice, rng) / 32768, ESPEAK_RATE, rng)
    except RecipeError as error:
        raise RecipeError(f"{error} for {text!r} by {voice}") from None
    soundfile.write(path, samples, SAMPLE_RATE, subtype="PCM_16")
    return {"id": name, "audio": audio, "duration": len(samples) / SAMPLE_RATE, "text": text,
            "speaker": voice}  # fmt: skip


def prepare(output_dir: Path, sizes: dict[str, int], seed: int, jobs: int) -> None:
    """Make the recordings, then write the manifests."""
    from tqdm import tqdm

    make = functools.partial(make_utterance, output_dir, seed, find_voices())
    tasks = [(split, index) for split in SPLITS for index in range(sizes[split])]
    # Ctrl-C is for the parent, which stops the workers.
    with multiprocessing.Pool(jobs, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        made = pool.imap(make, tasks, chunksize=16)
        lines = list(tqdm(made, total=len(tasks), unit="utt", disable=None))  # None: on terminals
    splits: dict[str, list[dict[str, Any]]] = {split: [] for split in SPLITS}
    for line, (split, _) in zip(lines, tasks, strict=True):
        splits[split].append(line)
    write_splits(splits, output_dir)
    for split, rows in splits.items():
        seconds = np.array([row["duration"] for row in rows])
        print(f"{split}: {len(rows)} utterances by {len({row['speaker'] for row in rows})} voices, "
              f"{seconds.sum() / 3600:.2f} h, each {seconds.min():.1f} to {seconds.max():.1f} s, "
              f"{seconds.mean():.1f} s on average")  # fmt: skip


def main() -> int:
    """Run the recipe; return 2 where the user has to put something right."""
    parser = argparse.ArgumentParser(
        description="Make a corpus of spoken digits and short commands with espeak-ng.",
        epilog="example:\n  python recipes/digits/prepare.py --output-dir data/digits --jobs 2",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output-dir", type=Path, required=True, help="folder of the corpus")
    parser.add_argument("--train", type=int, default=3600, help="utterances to train on (3600)")
    parser.add_argument("--dev", type=int, default=200, help="utterances to tune with (200)")
    parser.add_argument("--test", type=int, default=300, help="utterances to test with (300)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, another corpus (0)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    arguments = parser.parse_args()
    sizes = {split: getattr(arguments, split) for split in SPLITS}
    if min(*sizes.values(), arguments.jobs) < 1 or arguments.seed < 0:
        parser.error("--train, --dev, --test and --jobs must be at least 1, and --seed 0")
    try:
        for package in ("espeakng_loader", "soundfile", "soxr", "tqdm"):
            importlib.import_module(package)
        prepare(arguments.output_dir, sizes, arguments.seed, arguments.jobs)
    except (ImportError, RecipeError, OSError) as error:
        hint = f"; try: {pip_install('soxr')}" if isinstance(error, ImportError) else ""
        print(f"prepare.py: {error}{hint}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
