"""The digits recipe: manifests, voices, audio, and the same bytes however it is run."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from asrkit.extras import pip_install
from tests.conftest import PROJECT, read_rows
from tests.recipes.test_corpora import load_recipe

soundfile = pytest.importorskip("soundfile")
pytest.importorskip("espeakng_loader")
pytest.importorskip("soxr")

SIZES = {"train": 6, "dev": 2, "test": 3}


def run(folder: Path, *options: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the recipe into a folder, with `path` in front of the installed packages."""
    sizes = [text for split, size in SIZES.items() for text in (f"--{split}", str(size))]
    script = str(PROJECT / "recipes" / "digits" / "prepare.py")
    command = [sys.executable, script, "--output-dir", str(folder), *sizes, *options]
    environment = {**os.environ, **({"PYTHONPATH": str(path)} if path else {})}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def files(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder, by its relative path."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits") / "corpus"
    done = run(folder, "--jobs", "1")
    assert (done.returncode, done.stderr) == (0, "")  # no bar where nobody looks
    return folder


def test_manifests_describe_the_audio(corpus: Path) -> None:
    """Each file is in a manifest, and the splits share no variant of a voice."""
    voices = load_recipe("digits").find_voices()
    variants = [{voice.split("+")[1] for voice in voices[split]} for split in SIZES]
    assert len(set.union(*variants)) == sum(map(len, variants))
    listed = {f"{split}.jsonl" for split in SIZES}
    for split, size in SIZES.items():
        lines = read_rows(corpus / f"{split}.jsonl")
        listed |= {line["audio"] for line in lines}
        assert len({line["id"] for line in lines}) == len(lines) == size
        assert {line["speaker"] for line in lines} <= set(voices[split])
        for line in lines:
            assert line["text"] == " ".join(line["text"].lower().split())
            assert line["text"].replace(" ", "").isalpha()
            samples, rate = soundfile.read(corpus / line["audio"])
            assert (rate, samples.ndim) == (16000, 1)
            assert line["duration"] == pytest.approx(len(samples) / rate)
            assert 0.3 < line["duration"] < 12
            assert 0.02 < np.abs(samples).max() < 0.999
    assert set(files(corpus)) == listed


def test_the_same_bytes_by_any_number_of_jobs(corpus: Path, tmp_path: Path) -> None:
    assert run(tmp_path / "again", "--jobs", "2").returncode == 0
    assert files(tmp_path / "again") == files(corpus)
    assert run(tmp_path / "other", "--seed", "1").returncode == 0  # a control
    assert files(tmp_path / "other") != files(corpus)


def test_mistakes_get_one_line(tmp_path: Path) -> None:
    (tmp_path / "espeakng_loader.py").write_text("raise ImportError('no espeakng_loader')")
    missing = run(tmp_path / "corpus", path=tmp_path)
    assert missing.returncode == 2
    assert pip_install("soxr") in missing.stderr
    assert missing.stderr.count("\n") == 1
    assert run(tmp_path / "corpus", "--train", "-1").returncode == 2
