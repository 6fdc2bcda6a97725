"""Synthetic speech of a file of sentences, alone or joined with a real corpus, to train on.

The voices are those of flite, of festival and of the digits recipe's espeak-ng. An utterance is a
function of (seed, index) alone, as there, so an interrupted preparation resumes where it stopped.
"""

import argparse
import importlib.util
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
import soundfile
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpus import RecipeError, Utterance, audio_seconds, refused, write_manifests
from digits import prepare as digits  # its espeak-ng voices, noise and levels

from asrkit.atomic_write import replacing
from asrkit.data.manifest import lines_of, read_manifest
from asrkit.errors import UserError
from asrkit.extras import pip_install

# Awb is Scottish; kal and ked are diphones, the others were estimated from hours of one speaker.
VOICES = {
    "flite": ["awb", "kal16", "rms", "slt"],
    "text2wave": ["cmu_us_slt_arctic_hts", "kal_diphone", "ked_diphone"],  # festival's
}
TEMPO, TRACT = (0.85, 1.2), (0.85, 1.18)  # of a vocal tract's length: shifts all frequencies
ROOM = (0.05, 0.4)  # seconds in which half of the rooms' echo falls by 60 dB
PATIENCE = 20  # seconds for a sentence
MOST_WORDS, LONGEST = 30, 20.0  # of a sentence, in words and in seconds
MOST_TEXTS = 5_000_000
Speech = tuple[np.ndarray, str]  # samples at 16 kHz, and the speaker
FORMATS = {
    ".flac": {"format": "FLAC", "subtype": "PCM_16"},
    ".opus": {"format": "OGG", "subtype": "OPUS"},
}


@cache
def espeak_voices() -> list[str]:
    return digits.find_voices()["train"]


def speak(engine: str, text: str, rng: np.random.Generator) -> tuple[np.ndarray, float, str]:
    """A text by a random voice: samples, the rate to play them at, and the voice."""
    if engine == "espeak-ng":
        voice = str(rng.choice(espeak_voices()))
        return digits.synthesise(text, voice, rng) / 32768, digits.ESPEAK_RATE, voice
    voice, tract = str(rng.choice(VOICES[engine])), rng.uniform(*TRACT)
    stretch = tract * rng.uniform(*TEMPO)  # undoes the tempo that the tract's change brings
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "speech.wav")
        if engine == "flite":
            pitch = ["--setf", f"duration_stretch={stretch:.3f}"]
            command = ["flite", "-voice", voice, *pitch, "-t", text, "-o", str(out)]
        else:
            scheme = [f"(voice_{voice})", f"(Parameter.set 'Duration_Stretch {stretch:.3f})"]
            command = ["text2wave", "-o", str(out), "-eval", scheme[0], "-eval", scheme[1]]
        subprocess.run(
            command, input=text.encode(), capture_output=True, timeout=PATIENCE, check=True
        )
        samples, rate = soundfile.read(out)
    return samples, rate * tract, f"{engine}-{voice}"


def room(samples: np.ndarray, rate: int, rng: np.random.Generator) -> np.ndarray:
    """Speech with the echo of a random room, as long as it was."""
    seconds = rng.uniform(*ROOM)
    times = np.arange(int(seconds * rate)) / rate
    echo = rng.standard_normal(len(times)) * 10 ** (-3 * times / seconds)
    echo *= rng.uniform(0.1, 0.5) / np.sqrt(np.square(echo).sum())
    echo[0] = 1.0
    size = len(samples) + len(echo)
    wet: np.ndarray = np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(echo, size), size)
    wet = wet[: len(samples)]
    return wet * min(1.0, 0.98 / float(np.abs(wet).max()))


def make_utterance(
    folder: Path, seed: int, engines: list[str], task: tuple[int, str]
) -> Utterance | None:
    """Write one recording, unless it is there; None if the synthesizer failed on the text."""
    index, text = task
    rng = np.random.default_rng([seed, index])
    wanted = {"seed": seed, "engines": engines, "text": text}
    path = folder / "audio" / f"synthetic-{index:06d}.flac"
    return kept_or_made(path, wanted, lambda: recording(str(rng.choice(engines)), text, rng))


def kept_or_made(
    path: Path,
    wanted: dict[str, object],
    make: Callable[[], Speech],
    **encoding: float,
) -> Utterance | None:
    """Write the recording of a text, unless it is there; None if it cannot be used.

    Args:
        path: audio file, beside a note: another run may say other texts.
        wanted: note about the recording, without its speaker.
        make: function that speaks; its errors about the text are caught.
        encoding: options of soundfile.
    """
    note = path.with_suffix(".json")
    found = read_note(note)
    if found != wanted | {"speaker": str(found.get("speaker"))} or not is_whole(path):
        note.unlink(missing_ok=True)
        try:
            samples, speaker = make()
        except (
            subprocess.SubprocessError, soundfile.LibsndfileError, RecipeError, digits.RecipeError
        ):  # fmt: skip
            return None
        if len(samples) > LONGEST * digits.SAMPLE_RATE:
            return None
        with replacing(path) as temporary:
            kind = FORMATS[path.suffix]
            soundfile.write(temporary, samples, digits.SAMPLE_RATE, **kind, **encoding)
        found = wanted | {"speaker": speaker}
        with replacing(note) as temporary:
            temporary.write_text(json.dumps(found), encoding="utf-8")
    return {"id": path.stem, "audio": path, "duration": audio_seconds(path),
            "text": wanted["text"], "speaker": found["speaker"]}  # fmt: skip


def is_whole(path: Path) -> bool:
    """Whether a recording can be read: a power cut may leave an empty file."""
    try:
        return audio_seconds(path) > 0
    except RecipeError:
        return False


def read_note(path: Path) -> dict[str, object]:
    """Return the note about a recording; an empty one if the note cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def recording(engine: str, text: str, rng: np.random.Generator) -> Speech:
    """A text by a random voice in a random room, and the voice."""
    speech, rate, voice = speak(engine, text, rng)
    samples = digits.record(speech, rate, rng)
    return (room(samples, digits.SAMPLE_RATE, rng) if rng.random() < 0.5 else samples), voice


def digit_strings(seed: int) -> Iterator[str]:
    """Digits without end: every second text is one, the others are two to five."""
    for index in itertools.count():
        rng = np.random.default_rng([seed, index])
        yield " ".join(rng.choice(digits.DIGITS, size=1 if index % 2 else rng.integers(2, 6)))


def read_texts(paths: list[Path], seed: int) -> list[str]:
    """The sentences of text files that are not too long, in random order."""
    texts = [line.decode("utf-8").strip() for path in paths for _, line in lines_of(path)]
    return in_random_order(texts, (1, MOST_WORDS), seed)


def in_random_order(texts: list[str], words: tuple[int, int], seed: int) -> list[str]:
    """The texts with a number of words between two limits, in an order that depends on the seed."""
    texts = [text for text in texts if words[0] <= len(text.split()) <= words[1]]
    if not 0 < len(texts) <= MOST_TEXTS:
        raise RecipeError(f"--texts have {len(texts)} sentences of {words[0]} to {words[1]} words")
    return [texts[i] for i in np.random.default_rng(seed).permutation(len(texts))]


def synthesised(
    texts: Iterator[str], hours: float, make: partial[Utterance | None], jobs: int
) -> list[Utterance]:
    """Utterances of the texts in order, until there are enough hours."""
    rows: list[Utterance] = []
    seconds, failed = 0.0, 0
    bar = tqdm(total=round(hours * 3600), unit="s", disable=None)
    with multiprocessing.Pool(jobs, follow_parent) as pool, bar:
        tasks = enumerate(texts)
        while seconds < hours * 3600 and (some := list(itertools.islice(tasks, 32 * jobs))):
            for row in pool.imap(make, some):
                if row is None:
                    failed += 1
                elif seconds < hours * 3600:
                    rows.append(row)
                    seconds += row["duration"]
                    bar.update(round(row["duration"]))
    if failed:
        print(f"{failed} texts left out: their speech failed, or its length is wrong")
    if seconds < hours * 3600:
        raise RecipeError(f"the texts are {seconds / 3600:.1f} h, not {hours:g}: give more --texts")
    return rows


def follow_parent() -> None:
    """Leave Ctrl-C to the parent, which stops this worker, and end if the parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def available(wanted: list[str]) -> list[str]:
    """The engines that can speak here."""
    commands = {
        "flite": "apt-get install flite",
        "text2wave": "apt-get install festival festvox-kallpc16k festvox-kdlpc16k "
        "festvox-us-slt-hts",
        "espeak-ng": pip_install("espeakng_loader"),
    }
    espeak = importlib.util.find_spec("espeakng_loader")  # a library, not the program
    found = [name for name in wanted if (espeak if name == "espeak-ng" else shutil.which(name))]
    missing = [name for name in wanted if name not in found]
    hints = "; ".join(commands[name] for name in missing)
    if not found:
        raise RecipeError(f"no {', '.join(missing)}: {hints}")
    if missing:
        print(f"left out, not installed: {', '.join(missing)} ({hints})")
    return found


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "recipes/synthetic/speak.py", description=__doc__,
        epilog="example: python recipes/synthetic/speak.py --texts data/text/austen.txt "
        "--hours 4 --output-dir data/synthetic",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--output-dir", type=Path, required=True, help="folder of the corpus")
    parser.add_argument("--texts", type=Path, nargs="+", help="sentences, one a line (digits)")
    parser.add_argument("--hours", type=float, default=1.0, help="hours of speech (1)")
    parser.add_argument(
        "--join", type=Path, metavar="MANIFEST", help="real recordings that train has too"
    )
    engines = ["flite", "text2wave", "espeak-ng"]
    parser.add_argument(
        "--engines", nargs="+", choices=engines, default=engines,
        help="text2wave is festival's (all)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="another seed, another corpus (0)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare the corpus; returns the exit code."""
    parser = command_line()
    args = parser.parse_args(argv)
    if not 0 < args.hours <= 10_000 or args.seed < 0 or not 1 <= args.jobs <= 256:
        parser.error("--hours must be above 0, --seed 0 or more, --jobs at least 1")
    output = args.output_dir.resolve()
    try:
        texts = iter(read_texts(args.texts, args.seed)) if args.texts else digit_strings(args.seed)
        real = [
            {"id": row.id, "audio": row.audio, "duration": row.duration, "text": row.text,
             "speaker": row.speaker}
            for row in (read_manifest(args.join, []) if args.join else [])
        ]  # fmt: skip
        (output / "audio").mkdir(parents=True, exist_ok=True)
        make = partial(make_utterance, output, args.seed, available(args.engines))
        write_manifests({"train": real + synthesised(texts, args.hours, make, args.jobs)}, output)
    except (RecipeError, UserError, UnicodeDecodeError, OSError) as error:
        return refused("synthetic", error, "speak")
    except KeyboardInterrupt:
        print("speak.py: interrupted; the same command resumes here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
