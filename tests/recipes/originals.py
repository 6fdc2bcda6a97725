"""Tiny corpora in the layout of the originals that lhotse reads, and reading manifests back."""

from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import soundfile

from asrkit.data.manifest import read_manifest
from tests.recipes.test_corpora import load_recipe, make_samples

LIBRISPEECH, AISHELL = load_recipe("librispeech"), load_recipe("aishell")
YESNO = load_recipe("yesno")
RECIPES = {m.__name__.removesuffix("_prepare"): m for m in (LIBRISPEECH, AISHELL, YESNO)}

LIBRISPEECH_TEXTS = {
    "train-clean-5": {"19-198-0000": "NORTHANGER ABBEY", "19-198-0001": "IT'S THE LIFE"},
    "dev-clean-2": {"84-121-0000": "GO DO YOU HEAR"},
    "test-other": {"367-130-0000": "LOBSTERS AND LOBSTERS"},
}
# The full width letter and the blanks are as in the original.
AISHELL_TEXTS = {
    "BAC009S0002W0122": "而 对 楼市",
    "BAC009S0724W0121": "ｋ 歌 的 t 台",
    "BAC009S0764W0121": "甚至 出现",
}
AISHELL_SPLITS = {"train": "S0002", "dev": "S0724", "test": "S0764"}


class Fact(NamedTuple):
    id: str
    text: str | None
    speaker: str | None


def write_audio(path: Path, rate: int = 16000, seed: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, make_samples(seed, rate), rate)


def make_librispeech(folder: Path, parts: dict[str, dict[str, str]] = LIBRISPEECH_TEXTS) -> Path:
    """LibriSpeech/PART/SPEAKER/CHAPTER with recordings and their transcripts."""
    for part, texts in parts.items():
        for seed, (key, text) in enumerate(texts.items()):
            speaker, chapter, _ = key.split("-")
            chapter_folder = folder / "LibriSpeech" / part / speaker / chapter
            write_audio(chapter_folder / f"{key}.flac", seed=seed)
            with (chapter_folder / f"{speaker}-{chapter}.trans.txt").open("a") as file:
                file.write(f"{key} {text}\n")
    return folder / "LibriSpeech"


def make_aishell(folder: Path) -> Path:
    """data_aishell with a transcript of all and recordings by split and speaker."""
    path = folder / AISHELL.TRANSCRIPT
    path.parent.mkdir(parents=True)
    lines = [f"{key} {text}\n" for key, text in AISHELL_TEXTS.items()]
    path.write_text("".join(lines), encoding="utf-8")
    for key, (split, speaker) in zip(AISHELL_TEXTS, AISHELL_SPLITS.items(), strict=True):
        write_audio(folder / "data_aishell/wav" / split / speaker / f"{key}.wav")
    write_audio(folder / "data_aishell/wav/train/S0002/BAC009S0002W0999.wav")  # without a text
    return folder


def make_yesno(folder: Path) -> Path:
    """Sixty recordings whose names are their words."""
    for number in range(60):
        name = "_".join(f"{number:08b}")
        write_audio(folder / "waves_yesno" / f"{name}.wav", 8000, seed=number)
    return folder / "waves_yesno"


def prepare(module: ModuleType, folder: Path, out: Path, *options: str) -> dict[str, list[Fact]]:
    """Run a recipe, and read its manifests back as training and decoding do."""
    arguments = ["--output-dir", str(out), "--data-dir", str(folder), *options]
    assert module.main(arguments) == 0
    return facts(out)


def facts(out: Path) -> dict[str, list[Fact]]:
    """What the manifests say; their audio is there, whole, and what they say it is."""
    splits = {}
    for path in sorted(out.glob("*.jsonl")):
        utterances = list(read_manifest(path))
        for utterance in utterances:
            header = soundfile.info(utterance.audio)
            assert Path(utterance.audio).is_absolute()
            assert utterance.duration == pytest.approx(header.duration, abs=1e-4)
            assert (utterance.sample_rate or header.samplerate) == header.samplerate
            assert utterance.num_channels == header.channels
        splits[path.stem] = [Fact(u.id, u.text, u.speaker) for u in utterances]
    assert not list(out.glob("*part*"))
    return splits
