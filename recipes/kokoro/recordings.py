"""Recordings of many texts by several processes, which resume where they stopped."""

import itertools
import json
import multiprocessing
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import soundfile
from corpus import RecipeError, Utterance, audio_seconds
from digits.prepare import SAMPLE_RATE
from tqdm import tqdm

from asrkit.atomic_write import replacing
from asrkit.transcription.workers import end_with_parent

LONGEST = 20.0  # seconds of a recording
MOST_TEXTS = 5_000_000
Speech = tuple[np.ndarray, str]  # samples at 16 kHz, and the speaker
OPUS = {"format": "OGG", "subtype": "OPUS", "compression_level": 0.925}  # 24 kbit/s


def kept_or_made(
    path: Path, wanted: dict[str, object], make: Callable[[], Speech]
) -> Utterance | None:
    """Write the recording of a text, unless it is there; None if it cannot be used.

    Args:
        path: audio file, beside a note: another run may say other texts.
        wanted: note about the recording, without its speaker.
        make: function that speaks; its errors about the text are caught.
    """
    note = path.with_suffix(".json")
    found = read_note(note)
    if found != wanted | {"speaker": str(found.get("speaker"))} or not is_whole(path):
        note.unlink(missing_ok=True)
        try:
            samples, speaker = make()
        except (soundfile.LibsndfileError, RecipeError):
            return None
        if len(samples) > LONGEST * SAMPLE_RATE:
            return None
        with replacing(path) as temporary:
            soundfile.write(temporary, samples, SAMPLE_RATE, **OPUS)
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
    with multiprocessing.Pool(jobs, end_with_parent) as pool, bar:
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
