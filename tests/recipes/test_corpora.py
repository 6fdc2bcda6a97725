"""The recipes for real corpora: the originals in, checked manifests out."""

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import soundfile

from asrkit.config.schema import load_config
from asrkit.data.manifest import read_manifest
from tests.conftest import PROJECT, read_rows

AN4_TEXTS = {"an4_clstk/fash/an251-fash-b": "YES", "an4_clstk/fejs/cen1-fejs-b": "S C A V"}
AN4_TEST = {"an4test_clstk/fcaw/an406-fcaw-b": "RUBOUT G M"}
FSDD_NAMES = ["7_theo_4", "0_george_5", "1_george_9", "2_george_10", "9_theo_49"]


def load_recipe(name: str, script: str = "prepare") -> ModuleType:
    """The script as a module; all are called prepare.py, so import cannot tell them apart."""
    path = PROJECT / "recipes" / name / f"{script}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_{script}", path)
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


AN4, FSDD = load_recipe("an4"), load_recipe("fsdd")


def make_samples(seed: int, rate: int) -> np.ndarray:
    """A quiet tone with some noise, 16 bit, a little over 0.2 s; the length depends on the seed."""
    time = np.arange(rate // 5 + seed * 7)
    noise = np.random.default_rng(seed).normal(0, 20, len(time))
    return (2000 * np.sin(time / 9) + noise).astype(np.int16)


def make_an4(folder: Path) -> dict[str, np.ndarray]:
    """The unpacked original."""
    (folder / "etc").mkdir(parents=True)
    (folder / "LICENSE").write_text("free for use for any purpose\n")
    audio = {}
    for part, texts, form in (
        ("train", AN4_TEXTS, "<s> {} </s> ({})\n"),
        ("test", AN4_TEST, "{} ({})\n"),
    ):
        lines = [form.format(text, file_id.split("/")[-1]) for file_id, text in texts.items()]
        (folder / f"etc/an4_{part}.transcription").write_text("".join(lines))
        (folder / f"etc/an4_{part}.fileids").write_text("".join(f"{each}\n" for each in texts))
        for file_id in texts:
            samples = audio[file_id.split("/")[-1]] = make_samples(len(audio), 16000)
            path = folder / "wav" / f"{file_id}.sph"
            path.parent.mkdir(parents=True, exist_ok=True)
            soundfile.write(path, samples, 16000, format="NIST", subtype="PCM_16")
    return audio


def make_fsdd(folder: Path) -> dict[str, np.ndarray]:
    """The unpacked original."""
    (folder / "recordings").mkdir(parents=True)
    audio = {name: make_samples(seed, 8000) for seed, name in enumerate(FSDD_NAMES)}
    for name, samples in audio.items():
        soundfile.write(folder / f"recordings/{name}.wav", samples, 8000, subtype="PCM_16")
    return audio


def prepare(module: ModuleType, folder: Path, out: Path, *options: object) -> dict[str, list[dict]]:
    """Run a recipe; return its manifests."""
    arguments = ["--output-dir", out, "--data-dir", folder, *options]
    assert module.main([str(argument) for argument in arguments]) == 0
    for path in out.glob("*.jsonl"):
        assert [*read_manifest(path)]  # as training reads it
    return {path.stem: read_rows(path) for path in out.glob("*.jsonl")}


def refuse(module: ModuleType, arguments: Sequence[object], capsys: pytest.CaptureFixture) -> str:
    """Run a recipe that must refuse: exit code 2 and one line, which is returned."""
    assert module.main([str(argument) for argument in arguments]) == 2
    message: str = capsys.readouterr().err.split("\r")[-1].strip().splitlines()[-1]
    assert message.startswith("recipes/")
    return message


FACTS = {
    "an4": {
        "train": [("an251-fash-b", "YES", "fash")],
        "dev": [("cen1-fejs-b", "S C A V", "fejs")],
        "test": [("an406-fcaw-b", "RUBOUT G M", "fcaw")],
    },
    "fsdd": {
        "train": [("2_george_10", "two", "george"), ("9_theo_49", "nine", "theo")],
        "dev": [("0_george_5", "zero", "george"), ("1_george_9", "one", "george")],
        "test": [("7_theo_4", "seven", "theo")],
    },
}


@pytest.mark.parametrize(
    ("module", "make", "rate"), [(AN4, make_an4, 16000), (FSDD, make_fsdd, 8000)]
)
def test_manifests(module: ModuleType, make: object, rate: int, tmp_path: Path) -> None:
    audio = make(tmp_path / "in")  # type: ignore[operator]
    splits = prepare(module, tmp_path / "in", tmp_path / "out")
    facts = {s: [(r["id"], r["text"], r["speaker"]) for r in rows] for s, rows in splits.items()}
    assert facts == FACTS[module.__name__.removesuffix("_prepare")]
    for row in (row for rows in splits.values() for row in rows):
        samples, sample_rate = soundfile.read(row["audio"], dtype="int16")
        assert sample_rate == rate
        np.testing.assert_array_equal(samples, audio[row["id"]])
        assert row["duration"] == pytest.approx(len(samples) / rate, abs=1e-4)
    assert (tmp_path / "out/audio/LICENSE").is_file() == (module is AN4)


def test_what_is_wrong_with_an_original_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """And no manifest is written."""
    an4, fsdd = tmp_path / "an4", tmp_path / "fsdd"
    make_an4(an4)
    make_fsdd(fsdd)
    out = ["--output-dir", tmp_path / "out", "--data-dir"]
    (an4 / "etc/an4_test.transcription").write_text("YES\n")
    message = f"cannot read {an4} ('an406-fcaw-b'): get a whole copy"
    assert message in refuse(AN4, [*out, an4], capsys)
    (an4 / "wav/an4_clstk/fash/an251-fash-b.sph").unlink()
    assert "an251-fash-b.sph" in refuse(AN4, [*out, an4], capsys)
    assert "train split is empty" in refuse(FSDD, [*out, tmp_path], capsys)
    (fsdd / "recordings/9_theo_49.wav").rename(fsdd / "recordings/9_theo_50.wav")
    assert "9_theo_50.wav: the name should be" in refuse(FSDD, [*out, fsdd], capsys)
    (fsdd / "recordings/9_theo_50.wav").unlink()
    (fsdd / "recordings/2_george_10.wav").write_bytes(b"RIFF")
    assert "cannot read audio file" in refuse(FSDD, [*out, fsdd], capsys)
    assert not list(tmp_path.glob("out/*.jsonl"))


@pytest.mark.parametrize("name", ["an4", "fsdd", "digits", "alnum"])
def test_scripts_run_alone(name: str) -> None:
    command = [sys.executable, str(PROJECT / "recipes" / name / "prepare.py"), "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--output-dir" in shown.stdout


@pytest.mark.parametrize(
    "name", ["librispeech5", "librispeech100", "librispeech", "aishell", "yesno", "fsdd", "alnum"]
)
def test_configurations_name_what_the_commands_write(name: str) -> None:
    path = PROJECT / "conf" / f"{name}.yaml"
    config, recipe = load_config(path), name.rstrip("0123456789")
    assert config.data.train == [f"data/{name}/train.jsonl"]
    assert config.data.dev == f"data/{name}/dev.jsonl"
    assert config.training.output_dir == f"exp/{name}"
    readme = (PROJECT / "recipes" / recipe / "README.md").read_text(encoding="utf-8")
    assert f"--config conf/{path.name}" in readme
    assert f"data/{name}" in readme
