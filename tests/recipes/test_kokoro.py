"""Neural synthetic speech, by a stand-in for Kokoro: which voices say what, the same again."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.conftest import read_rows
from tests.recipes.test_corpora import load_recipe

KOKORO, SYNTHESIZER = load_recipe("kokoro", "speak"), load_recipe("kokoro", "synthesizer")
VOICES = ["af_a", "am_b", "bf_c", *sorted(KOKORO.DEV_VOICES)]
TEXTS = {
    "a.txt": "Mr. Weston was out, and Emma's day was long.\nToo short, this.\n",
    "b.txt": '"Did he go?" he said to 3 of the nine sisters - no, ten!\n',
}
SAID = ["Mister Weston was out, and Emma's day was long.",
        "Did he go? he said to three of the nine sisters - no, ten!"]  # fmt: skip


class Tone:
    """A synthesizer whose speech is a tone, 60 ms a letter; its pitch depends on the voice."""

    def __init__(self, _folder: Path) -> None:
        self.voices = {name: np.full((510, 256), i + 1.0) for i, name in enumerate(VOICES)}

    def symbols_of(self, text: str, language: str) -> list[int]:
        assert language in ("en-us", "en-gb")
        return [ord(letter) for letter in text]

    def __call__(self, symbols: list[int], voice: np.ndarray, speed: float) -> np.ndarray:
        return tone(0.06 * len(symbols) / speed, 400 * voice.mean())


def tone(seconds: float, hertz: float = 400.0) -> np.ndarray:
    """A tone with 0.5 s of silence at both ends."""
    times = np.arange(int(seconds * 24000)) / 24000
    return np.pad(0.5 * np.sin(2 * np.pi * hertz * times), 12000)


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Text files, and a stand-in for the synthesizer."""
    monkeypatch.setattr(KOKORO, "kokoro", Tone)
    monkeypatch.setattr(KOKORO, "check_packages", lambda folder: None)
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text)
    return [tmp_path / name for name in TEXTS]


def prepare(out: Path, texts: list[Path], *options: object) -> dict[str, list[dict]]:
    arguments = ["--output-dir", out, "--texts", *texts, "--jobs", 1, "--packages", out, *options]
    assert KOKORO.main([str(argument) for argument in arguments]) == 0
    return {name: read_rows(out / f"{name}.jsonl") for name in ("train", "dev")}


def test_texts_as_they_are_written_and_in_capitals(texts: list[Path], tmp_path: Path) -> None:
    """The same recordings; a sentence from each file in turn, numbers and titles as words."""
    hours = ("--hours", 0.0015)
    rows = prepare(tmp_path / "out", texts, "--written", *hours)
    assert [row["text"] for row in rows["dev"] + rows["train"]] == SAID
    times = [Path(row["audio"]).stat().st_mtime_ns for row in rows["train"]]
    rows = prepare(tmp_path / "out", texts, *hours)
    assert [row["text"] for row in rows["dev"] + rows["train"]] == [
        "MISTER WESTON WAS OUT AND EMMA'S DAY WAS LONG",
        "DID HE GO HE SAID TO THREE OF THE NINE SISTERS NO TEN",
    ]
    assert [Path(row["audio"]).stat().st_mtime_ns for row in rows["train"]] == times


def test_voices_and_recordings(texts: list[Path], tmp_path: Path) -> None:
    """Dev has voices of its own, train has all others and blends; the same in several processes."""
    words = [f"{i:b}".replace("0", "b").replace("1", "a") for i in range(100)]
    texts[0].write_text("".join(f"This line ends in the word {word}.\n" for word in words))
    some = prepare(tmp_path / "out", texts[:1], "--hours", 0.004)
    rows = prepare(tmp_path / "out", texts[:1], "--hours", 0.015)
    assert [*rows["train"]][: len(some["train"])] == some["train"]
    names = {row["speaker"] for row in rows["train"]}
    assert {*VOICES[:3]} < names
    assert {part for name in names for part in name.split("+")} == {*VOICES[:3]}
    assert {p for row in rows["dev"] for p in row["speaker"].split("+")} <= KOKORO.DEV_VOICES
    again = prepare(tmp_path / "again", texts[:1], "--hours", 0.015, "--jobs", 2)
    for one, other in zip(rows["train"], again["train"], strict=True):
        assert one["text"] == other["text"]
        samples, rate = soundfile.read(one["audio"])
        assert rate == 16000
        assert 2 < len(samples) / rate == pytest.approx(one["duration"], abs=1e-3)
        assert np.array_equal(samples, soundfile.read(other["audio"])[0])
        loud = np.flatnonzero(np.abs(samples) > 0.1) / rate
        assert loud[0] == pytest.approx(0.25, abs=0.02)
    another = prepare(tmp_path / "another", texts[:1], "--hours", 0.015, "--seed", 2)
    assert another["train"] != rows["train"]


REJECTED = {
    "quiet": 0.01 * tone(3.0),
    "nan": tone(3.0) * np.nan,
    "empty": np.zeros(0),
    "fast": tone(1.2),  # 24 ms a symbol
    "slow": tone(6.0),  # 120 ms a symbol
    "long pause": np.concatenate([tone(1.0), np.zeros(24000), tone(1.0)]),
}


def test_speech_of_fifty_symbols() -> None:
    for samples in (tone(3.0), np.concatenate([tone(1.5), tone(1.5)])):
        assert len(KOKORO.checked(samples, 50)) <= len(samples) - 2 * 5990
    for samples in REJECTED.values():
        with pytest.raises(KOKORO.RecipeError):
            KOKORO.checked(samples, 50)
