"""The digits recipe: manifests, voices, audio, and the same bytes however it is run."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from asrkit.extras import pip_install

soundfile = pytest.importorskip("soundfile")
pytest.importorskip("espeakng_loader")
pytest.importorskip("soxr")

RECIPE = Path(__file__).parents[2] / "recipes" / "digits" / "prepare.py"
SIZES = {"train": 6, "dev": 2, "test": 3}


def run(folder: Path, *options: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the recipe into a folder, with `path` in front of the installed packages."""
    sizes = [text for split, size in SIZES.items() for text in (f"--{split}", str(size))]
    command = [sys.executable, str(RECIPE), "--output-dir", str(folder), *sizes, *options]
    environment = {**os.environ, **({"PYTHONPATH": str(path)} if path else {})}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def files(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder, by its relative path."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def rows(folder: Path, split: str) -> list[dict]:
    """Return the lines of a manifest."""
    return [json.loads(line) for line in (folder / f"{split}.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits") / "corpus"
    done = run(folder, "--jobs", "1")
    assert (done.returncode, done.stderr) == (0, "")  # no bar where nobody looks
    return folder


def test_manifests_describe_the_audio(corpus: Path) -> None:
    for split, size in SIZES.items():
        lines = rows(corpus, split)
        assert len({line["id"] for line in lines}) == len(lines) == size
        for line in lines:
            assert set(line) == {"id", "audio", "duration", "text", "speaker"}
            assert line["text"] == " ".join(line["text"].lower().split())
            assert line["text"].replace(" ", "").isalpha()
            samples, rate = soundfile.read(corpus / line["audio"])
            assert rate == 16000
            assert samples.ndim == 1
            assert line["duration"] == pytest.approx(len(samples) / rate)
            assert 0.3 < line["duration"] < 12
            assert 0.02 < np.abs(samples).max() < 0.999


def test_every_file_is_in_a_manifest(corpus: Path) -> None:
    listed = {line["audio"] for split in SIZES for line in rows(corpus, split)}
    manifests = {f"{split}.jsonl" for split in SIZES}
    assert set(files(corpus)) == listed | manifests | {"corpus.json"}


def test_splits_share_no_variant(corpus: Path) -> None:
    spec = importlib.util.spec_from_file_location("digits_prepare", RECIPE)
    assert spec
    assert spec.loader
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    voices = recipe.find_voices()
    variants = [{voice.split("+")[1] for voice in voices[split]} for split in SIZES]
    assert len(set.union(*variants)) == sum(len(found) for found in variants)
    for split in SIZES:
        assert {line["speaker"] for line in rows(corpus, split)} <= set(voices[split])


def test_jobs_change_no_byte(corpus: Path, tmp_path: Path) -> None:
    assert run(tmp_path / "again", "--jobs", "2").returncode == 0
    assert files(tmp_path / "again") == files(corpus)


def test_seed_changes_the_corpus(corpus: Path, tmp_path: Path) -> None:
    assert run(tmp_path / "other", "--seed", "1").returncode == 0
    assert rows(tmp_path / "other", "train") != rows(corpus, "train")


def test_interrupted_run_goes_on(corpus: Path) -> None:
    before = files(corpus)
    kept = corpus / "audio" / "train" / "digits-train-00001.flac"
    written = kept.stat().st_mtime_ns
    (corpus / "audio" / "train" / "digits-train-00003.flac").unlink()
    (corpus / "audio" / "test" / "digits-test-00000.flac").write_bytes(b"")
    for split in SIZES:
        (corpus / f"{split}.jsonl").unlink()
    assert run(corpus).returncode == 0
    assert files(corpus) == before
    assert kept.stat().st_mtime_ns == written


def test_second_run_does_nothing(corpus: Path) -> None:
    done = run(corpus)
    assert done.returncode == 0
    assert "nothing to do" in done.stdout


def test_mistakes_get_one_line(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub" / "espeakng_loader.py").write_text("raise ImportError('no espeakng_loader')")
    other_seed = run(corpus, "--seed", "7")
    missing = run(tmp_path / "corpus", path=tmp_path / "stub")
    for done, hint in ((other_seed, "another corpus"), (missing, pip_install("soxr"))):
        assert done.returncode == 2
        assert hint in done.stderr
        assert done.stderr.count("\n") == 1
    assert run(tmp_path / "corpus", "--train", "-1").returncode == 2
