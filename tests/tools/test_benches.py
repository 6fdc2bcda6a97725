"""The benchmarks run, and their tables hold a number for everything that they measure."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from asrkit.export.__main__ import main as export
from asrkit.model_file import load_model
from asrkit.runtime import recognizer_of

PROJECT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROJECT)}
STREAMING = {
    "asrkit",
    "asrkit, TorchScript frozen",
    "torchaudio Emformer, 2 layers",
    "torchaudio Emformer, 4 layers",
    "torchaudio Emformer, 4 layers, TorchScript",
}
SEARCHES = {
    "greedy",
    "prefix beam 10",
    "prefix beam 10, in chunks of 640 ms",
    "prefix beam 10, all tokens",
    "prefix beam 10, with a 3-gram of words",
    "prefix beam 50",
}
TRAINING = {"asrkit, full context", "asrkit, chunks of 640 ms", "torchaudio Conformer"}
OFFLINE = TRAINING | {"asrkit, 30 s a step"}


QUICK = ("--quick", "--threads", "1")  # several test processes share the cores

Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a benchmark with options in this process and returns its standard output."""
    monkeypatch.syspath_prepend(PROJECT / "tools" / "benchmarks")

    def run(script: str, *options: str) -> str:
        monkeypatch.setattr(sys, "argv", [f"tools/benchmarks/{script}.py", *options])
        assert not importlib.import_module(script).main()
        return capsys.readouterr().out

    return run


def table(output: str) -> list[dict[str, str]]:
    """The rows of the Markdown table."""
    lines = [line.strip("| ").split(" | ") for line in output.splitlines() if line[:2] == "| "]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]


def check(output: str, contenders: set[str], file: Path) -> None:
    """Every contender has a row of positive numbers, and the JSON file has the same rows."""
    rows = table(output)
    assert {row.pop("contender") for row in rows} == contenders
    assert all(float(value) > 0 for row in rows for value in row.values()), output
    assert "- CPU: " in output
    assert "- commit: " in output
    written = json.loads(file.read_text())["rows"]
    assert {row.pop("contender") for row in written} == contenders
    assert all(value > 0 for row in written for value in row.values())


def test_streaming(run: Run, tmp_path: Path) -> None:
    check_streaming(run, tmp_path, ["ONNX", "speechbrain"], STREAMING)


@pytest.mark.slow
def test_streaming_on_every_backend(run: Run, tmp_path: Path) -> None:
    exported = {"asrkit, ONNX Runtime", "asrkit, ONNX Runtime int8"}
    check_streaming(run, tmp_path, ["speechbrain"], STREAMING | exported)


def check_streaming(run: Run, folder: Path, without: list[str], contenders: set[str]) -> None:
    options = ["--rounds", "2", "--json", str(folder / "stream.json"), "--without", *without]
    check(run("bench_stream", *QUICK, *options), contenders, folder / "stream.json")


def test_gpu(run: Run) -> None:
    """On the CPU, which has the same rows without graphs and kernels."""
    rows = table(run("bench_gpu", "--quick", "--device", "cpu", "--rounds", "1", "--parts", "live"))
    assert [row["precision"] for row in rows] == ["float32", "bfloat16"]
    assert all(float(row["ms"]) > 0 for row in rows)


@pytest.fixture
def reference(run: Run, tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    run("reference_model", "--quick", str(path))
    return path


def test_reference_model(reference: Path) -> None:
    """It can be loaded, and runs."""
    file = load_model(reference)
    assert (file.model.encoder.dim, len(file.model.encoder.layers)) == (256, 2)
    assert recognizer_of(file).transcribe(np.zeros(16000, dtype=np.float32)).is_final


def test_offline(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The times; the next test measures memory, which takes processes of its own."""
    monkeypatch.syspath_prepend(PROJECT / "tools" / "benchmarks")
    monkeypatch.setattr("bench_offline.memory", lambda *_: 1.0)
    monkeypatch.setattr("resource.setrlimit", lambda *_: None)  # not for the tests after it
    options = ["--rounds", "2", "--without", "speechbrain"]
    output = run("bench_offline", *QUICK, *options, "--json", str(tmp_path / "offline.json"))
    check(output, OFFLINE, tmp_path / "offline.json")


@pytest.mark.slow
def test_offline_with_memory(tmp_path: Path) -> None:
    """In its own process, as all of them are called, and of one contender."""
    others = ["speechbrain", "torchaudio", "full", "a step"]
    check_offline(tmp_path, {"asrkit, chunks of 640 ms"}, "--without", *others)


def check_offline(folder: Path, contenders: set[str], *options: str) -> None:
    command = [sys.executable, "tools/benchmarks/bench_offline.py", *QUICK, "--rounds", "2"]
    command += [*options, "--json", str(folder / "offline.json")]
    done = subprocess.run(command, cwd=PROJECT, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    check(done.stdout, contenders, folder / "offline.json")


@pytest.mark.slow
def test_offline_with_an_exported_file(reference: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.onnx"
    assert export(["--model", str(reference), "--format", "onnx", "--output", str(path)]) == 0
    exported = {"asrkit, x.onnx, 30 s a step"}
    check_offline(tmp_path, OFFLINE | exported, "--without", "speechbrain", "--onnx", str(path))


def test_training(run: Run, tmp_path: Path) -> None:
    options = ["--rounds", "1", "--without", "speechbrain"]
    output = run("bench_train", *QUICK, *options, "--json", str(tmp_path / "train.json"))
    check(output, TRAINING, tmp_path / "train.json")


def test_search(run: Run) -> None:
    rows = table(run("bench_search", *QUICK, "--rounds", "2"))
    assert {row["posteriors"] for row in rows} == {"peaky", "soft"}
    assert {row["contender"] for row in rows} >= SEARCHES  # and flashlight-text's, if there is one
    assert all(float(row["median, ms"]) > 0 for row in rows)


def test_what_takes_too_long_is_reported(run: Run) -> None:
    options = ["--rounds", "1", "--limit", "0.001", "--without", "asrkit"]
    rows = table(run("bench_stream", *QUICK, *options))
    assert {row["median, ms"] for row in rows} == {"over 0.001 s"}
    assert {row["RTF"] for row in rows} == {"–"}


@pytest.mark.parametrize("join", [0, 4])
def test_calls_of_more_recordings_than_there_are_are_refused(
    join: int, run: Run, corpus: Path
) -> None:
    """They were made of fewer, and the table was that of other calls."""
    told = f"--join must be 1 to the 3 recordings read, got {join}"
    with pytest.raises(SystemExit, match=told):
        run("bench_serve", "--manifest", str(corpus / "dev.jsonl"), "--join", str(join))
