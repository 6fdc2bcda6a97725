"""The comparison of offline with streaming: its counts, its controls and its command."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tests.conftest import speech, write_manifest, write_wav

FOLDER = Path(__file__).parents[2] / "tools" / "benchmarks"


@pytest.fixture
def consistency(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("consistency")


def log_probs(*labels: int) -> torch.Tensor:
    """(E, 4) in which each frame's best label is known."""
    return torch.eye(4)[list(labels)].log_softmax(dim=1)


def test_compare(consistency: ModuleType) -> None:
    offline = log_probs(1, 1, 0, 2)
    assert consistency.compare(offline, offline) == (False, 4, 0, 0.0, 0)
    longer = consistency.compare(offline, log_probs(1, 1, 0, 2, 3, 3))
    assert longer == (False, 4, 0, 0.0, 2)  # silence after the end is not a part of the text
    assert consistency.compare(offline, log_probs(1, 1, 0)) == (True, 3, 0, 0.0, -1)
    other = consistency.compare(offline, log_probs(1, 3, 0, 2))
    assert (other.other_text, other.other_frames, other.largest) == (True, 1, pytest.approx(1.0))
    assert consistency.compare("a", "a") == (False, 0, 0, 0.0, 0)
    assert consistency.compare("a", "b").other_text


@pytest.fixture
def measured(consistency: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The command's output for asrkit and one recording."""
    write_wav(tmp_path / "a.wav", speech(1.5))
    manifest = write_manifest(tmp_path / "m.jsonl", {"id": "a", "audio": "a.wav", "text": "no"})
    assert consistency.main(["--quick", "--only", "asrkit", "--", str(manifest)]) == 0
    return capsys.readouterr().out


def test_asrkit_streams_as_it_recognises_files_and_the_controls_differ(measured: str) -> None:
    lines = [line.strip("| ").split(" | ") for line in measured.splitlines() if line[:2] == "| "]
    rows = [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]
    controls = {row["toolkit"]: row for row in rows if row["toolkit"].startswith("control")}
    own = [row for row in rows if row["toolkit"].startswith("asrkit")]
    assert {row["weights"] for row in own} == {"small-en-alnum", "random"}
    assert all(row["other texts"] == "0 of 1" and row["other frames"] == "0.0 %" for row in own)
    assert all(row["frames at the end"] == "0" for row in own)
    assert float(controls["control: one path twice"]["largest difference"]) == 0
    forgetful = controls["control: asrkit without a past"]
    assert float(forgetful["largest difference"]) > 0.1
    assert float(forgetful["other frames"].split()[0]) > 10


def test_the_command_names_a_toolkit_that_is_not_installed(
    consistency: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    write_wav(tmp_path / "a.wav", speech(0.5))
    manifest = write_manifest(tmp_path / "m.jsonl", {"id": "a", "audio": "a.wav", "text": "no"})
    monkeypatch.setattr(consistency, "find_spec", lambda _: None)
    assert consistency.main(["--only", "nemo", "--", str(manifest)]) == 1
    assert capsys.readouterr().err == "nemo: left out, it is not installed\n"


def test_recordings_that_cannot_be_read(
    consistency: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert consistency.main([str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl" in capsys.readouterr().err
