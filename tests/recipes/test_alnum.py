"""The joint corpus: one spelling, real speech more often, strings of one speaker's digits."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.conftest import write_manifest
from tests.recipes.test_corpora import load_recipe, make_samples, prepare, refuse

ALNUM = load_recipe("alnum")
SPOKEN = {
    "an4": {"train": [("an1", "YES", "a"), ("an2", "B E", "b")], "dev": [("an3", "GO", "c")]},
    "fsdd": {
        "train": [(f"{i}_{name}", word, name) for name in ("theo", "jo")
                  for i, word in enumerate(["zero", "one", "two"])],
        "dev": [("0_dev", "zero", "theo")],
    },
    "digits": {"train": [("d1", "call oh two", "en+x")], "dev": [("d2", "one", "en+y")]},
}  # fmt: skip
RATES = {"an4": 16000, "fsdd": 8000, "digits": 16000}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The three corpora, prepared; every recording is another one."""
    monkeypatch.setattr(ALNUM, "NOISES", 3)  # one of each kind
    monkeypatch.setattr(ALNUM, "STRINGS", 20)
    folder, seed = tmp_path / "data", 0
    for name, splits in SPOKEN.items():
        (folder / name / "audio").mkdir(parents=True)
        for split, spoken in splits.items():
            lines = []
            for key, text, speaker in spoken:
                seed += 1
                samples, path = make_samples(seed, RATES[name]), f"audio/{key}.flac"
                soundfile.write(folder / name / path, samples, RATES[name], subtype="PCM_16")
                row = {"id": key, "audio": path, "duration": len(samples) / RATES[name]}
                lines.append(row | {"text": text, "speaker": speaker})
            write_manifest(folder / name / f"{split}.jsonl", *lines)
    return folder


def test_joined(data: Path) -> None:
    """Lower case, an4 twice, strings of digits, noise of three kinds; the same again."""
    splits = prepare(ALNUM, data, data / "alnum")
    assert [(row["id"], row["text"]) for row in splits["dev"]] == [
        ("an3", "go"), ("0_dev", "zero"), ("d2", "one"),
    ]  # fmt: skip
    texts = {row["id"]: row["text"] for row in splits["train"]}
    assert {texts[key] for key in ("an1", "an1-2")} == {"yes"}
    assert {texts[key] for key in ("an2", "an2-2")} == {"b e"}
    assert len(texts) == 4 + 6 + 1 + 20
    noises = {row["id"]: soundfile.read(row["audio"])[0] for row in splits["noise"]}
    assert [*noises] == ["room-000", "hum-001", "talk-002"]
    for samples in noises.values():
        assert len(samples) == 160_000
        assert np.abs(samples).max() == pytest.approx(0.3, abs=0.001)
        assert samples.std() > 0.02
    spectrum = np.abs(np.fft.rfft(noises["hum-001"]))
    mains = [spectrum[base * 10] / np.median(spectrum[base * 10 - 40 :][:80]) for base in (50, 60)]
    assert max(mains) > 10.0
    again = prepare(ALNUM, data, data / "again")
    for split, rows in splits.items():
        for one, other in zip(rows, again[split], strict=True):
            assert Path(one["audio"]).read_bytes() == Path(other["audio"]).read_bytes()


def test_strings_are_their_digits_in_a_row(data: Path) -> None:
    """Of one speaker, with each digit's samples after the one before it."""
    train = prepare(ALNUM, data, data / "alnum")["train"]
    recordings = {
        (row["speaker"], row["text"]): soundfile.read(row["audio"], dtype="int16")[0]
        for row in train if "_" in row["id"]
    }  # fmt: skip
    strings = [row for row in train if row["id"].startswith("string")]
    assert {len(row["text"].split()) for row in strings} >= {1, 4, 7}
    assert {row["speaker"] for row in strings} == {"theo", "jo"}
    for row in strings:
        samples, rate = soundfile.read(row["audio"], dtype="int16")
        assert row["duration"] == len(samples) / rate
        start = 0
        for word in (recordings[row["speaker"], word] for word in row["text"].split()):
            windows = np.lib.stride_tricks.sliding_window_view(samples[start:], len(word))
            same = np.abs(windows[:, ::50].astype(int) - word[::50]) <= 1
            start += int(np.flatnonzero(same.all(axis=1))[0]) + len(word)


def test_mistakes(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--output-dir", data / "alnum", "--data-dir", data]
    stereo = np.stack([make_samples(1, 8000)] * 2, axis=1)
    soundfile.write(data / "fsdd" / "audio" / "1_jo.flac", stereo, 8000)
    assert "1_jo.flac is empty, not mono, or" in refuse(ALNUM, arguments, capsys)
    (data / "digits" / "train.jsonl").unlink()
    message = refuse(ALNUM, arguments, capsys)
    assert message.endswith(f"{data}/digits is not prepared: run recipes/digits/prepare.py")
    assert not (data / "alnum" / "train.jsonl").exists()
