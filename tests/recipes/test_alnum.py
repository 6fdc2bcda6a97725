"""The joint corpus: one spelling, real speech more often, strings of one speaker's digits."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from asrkit.config import load_config
from asrkit.data.manifest import read_manifest
from tests.conftest import PROJECT
from tests.recipes.test_corpora import Rows, load_recipe, make_samples, read_rows, refuse

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


def make_corpora(folder: Path) -> Path:
    """The three of them, prepared; every recording is another one."""
    seed = 0
    for name, splits in SPOKEN.items():
        (folder / name / "audio").mkdir(parents=True)
        for split, spoken in splits.items():
            lines = []
            for key, text, speaker in spoken:
                seed += 1
                samples, path = make_samples(seed, RATES[name]), f"audio/{key}.flac"
                soundfile.write(folder / name / path, samples, RATES[name], subtype="PCM_16")
                row = {"id": key, "audio": path, "duration": len(samples) / RATES[name]}
                lines.append(json.dumps(row | {"text": text, "speaker": speaker}) + "\n")
            (folder / name / f"{split}.jsonl").write_text("".join(lines))
    return folder


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(ALNUM, "NOISES", 3)  # one of each kind
    return make_corpora(tmp_path / "data")


def prepared(data: Path, *options: object, output: str = "alnum") -> tuple[Rows, Rows]:
    arguments = ["--output-dir", data / output, *options]
    assert ALNUM.main([str(argument) for argument in arguments]) == 0
    train, dev = (read_rows(data / output / f"{split}.jsonl") for split in ("train", "dev"))
    return train, dev


def test_joined(data: Path) -> None:
    """Beside the corpora, where the configuration wants it: lower case, an4 twice, strings."""
    train, dev = prepared(data, "--strings", 3)
    assert [(row["id"], row["text"]) for row in dev] == [
        ("an3", "go"), ("0_dev", "zero"), ("d2", "one"),
    ]  # fmt: skip
    texts = {str(row["id"]): row["text"] for row in train}
    assert {texts[key] for key in ("an1", "an1-2")} == {"yes"}
    assert {texts[key] for key in ("an2", "an2-2")} == {"b e"}
    assert len(texts) == 4 + 6 + 1 + 3
    assert len(list(read_manifest(data / "alnum" / "train.jsonl"))) == len(texts)
    config = load_config(PROJECT / "conf" / "alnum.yaml")
    assert (config.data.recipe, config.data.train) == ("alnum", ["data/alnum/train.jsonl"])


def test_noises_are_of_three_kinds_and_a_function_of_the_seed(data: Path) -> None:
    def noises(seed: int) -> dict[str, np.ndarray]:
        prepared(data, "--seed", seed, "--strings", 0, output=f"noise-{seed}")
        rows = read_rows(data / f"noise-{seed}" / "noise.jsonl")
        assert {str(row["id"]).split("-")[0] for row in rows} == {"room", "hum", "talk"}
        return {str(row["id"]): soundfile.read(row["audio"])[0] for row in rows}

    first, other = noises(0), noises(1)
    for name, samples in first.items():
        assert len(samples) == 160_000
        assert np.abs(samples).max() == pytest.approx(0.3, abs=0.001)
        assert samples.std() > 0.02
        assert not np.array_equal(samples, other[name])
    spectrum = np.abs(np.fft.rfft(first["hum-001"]))
    mains = [spectrum[base * 10] / np.median(spectrum[base * 10 - 40 :][:80]) for base in (50, 60)]
    assert max(mains) > 10.0
    again = soundfile.read(data / "noise-0" / "noise" / "talk-002.flac")[0]
    prepared(data, "--strings", 0, output="again")
    assert np.array_equal(again, soundfile.read(data / "again" / "noise" / "talk-002.flac")[0])


def test_repetitions(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train, _ = prepared(data, "--repeat", "fsdd=3", "digits=2", "--strings", 0)
    assert len(train) == 2 + 3 * 6 + 2
    assert len(prepared(data, "--repeat", "--strings", 0)[0]) == 2 + 6 + 1
    for repeat in ("an5=2", "an4", "an4=0", "an4=-1", "an4=x"):
        with pytest.raises(SystemExit):
            ALNUM.main(["--output-dir", "x", "--repeat", repeat])
        message = f"must be CORPUS=N, of an4, fsdd, digits, N from 1; got {repeat!r}"
        assert message in capsys.readouterr().err


def test_strings_are_their_digits_in_a_row(data: Path) -> None:
    """Each digit's samples stand in the string, in the order of its text, pauses around them."""
    train, _ = prepared(data, "--strings", 20)
    recordings = {
        (row["speaker"], row["text"]): soundfile.read(row["audio"], dtype="int16")[0]
        for row in train if "_" in str(row["id"])
    }  # fmt: skip
    strings = [row for row in train if str(row["id"]).startswith("string")]
    assert len(strings) == 20
    assert {len(str(row["text"]).split()) for row in strings} >= {1, 4, 7}
    assert {row["speaker"] for row in strings} == {"theo", "jo"}
    for row in strings:
        samples, rate = soundfile.read(row["audio"], dtype="int16")
        assert rate == 8000
        assert row["duration"] == len(samples) / rate
        words = [recordings[row["speaker"], word] for word in str(row["text"]).split()]
        end, pauses = 0, []
        for word in words:
            start = where(word, samples, end)
            assert start >= 0
            pauses.append(samples[end:start])
            end = start + len(word)
        pauses.append(samples[end:])
        assert all(1000 < pause.std() < 2000 for pause in pauses)  # the recordings have 1414
        around = [len(pause) / rate for pause in (pauses.pop(0), pauses.pop())]
        assert all(0.099 < seconds < 0.5 for seconds in around)
        assert all(0.019 < len(pause) / rate < 0.3 for pause in pauses)


def where(word: np.ndarray, samples: np.ndarray, start: int) -> int:
    """The first sample from `start` on at which a recording stands as it was, or -1."""
    windows = np.lib.stride_tricks.sliding_window_view(samples[start:], len(word))
    found = np.flatnonzero((np.abs(windows[:, ::50].astype(int) - word[::50]) <= 1).all(axis=1))
    return start + int(found[0]) if len(found) else -1


def test_control_another_recording_is_not_found(data: Path) -> None:
    samples = [soundfile.read(path, dtype="int16")[0] for path in sorted(data.glob("fsdd/*/*"))]
    assert where(samples[0], samples[0], 0) == 0
    longer = np.concatenate([samples[1], samples[2], samples[3]])
    assert where(samples[0], longer, 0) == -1


def test_strings_are_a_function_of_the_seed(data: Path) -> None:
    first, again, other = (
        prepared(data, "--strings", 5, "--seed", seed, output=f"{i}")[0]
        for i, seed in enumerate([0, 0, 1])
    )

    def spoken(rows: Rows) -> list[tuple[object, bytes]]:
        return [(row["text"], soundfile.read(row["audio"])[0].tobytes()) for row in rows[-5:]]

    assert spoken(first) == spoken(again)
    assert spoken(first) != spoken(other)


def test_mistakes(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = ["--output-dir", data / "alnum"]
    stereo = np.stack([make_samples(1, 8000)] * 2, axis=1)
    soundfile.write(data / "fsdd" / "audio" / "1_jo.flac", stereo, 8000)
    row = json.loads((data / "fsdd" / "train.jsonl").read_text().splitlines()[4])
    lines = (data / "fsdd" / "train.jsonl").read_text()
    duration = len(stereo) / 8000
    changed = lines.replace(f'"duration": {row["duration"]}', f'"duration": {duration}')
    (data / "fsdd" / "train.jsonl").write_text(changed)
    assert "1_jo.flac is empty, not mono, or" in refuse(ALNUM, output, capsys)
    (data / "digits" / "train.jsonl").unlink()
    message = refuse(ALNUM, output, capsys)
    assert f"{data}/digits is not prepared: python recipes/digits/prepare.py" in message
    message = refuse(ALNUM, [*output, "--data-dir", data / "none"], capsys)
    assert message.endswith(
        f"python recipes/an4/prepare.py --output-dir {data}/none/an4 --download"
    )
    assert not (data / "alnum" / "train.jsonl").exists()
