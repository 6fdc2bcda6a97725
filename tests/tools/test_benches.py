"""The benchmarks run, and their tables hold a number for everything that they measure."""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from asrkit.model_file import load_model
from asrkit.runtime import recognizer_of

PROJECT = Path(__file__).parents[2]
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


@pytest.mark.parametrize(
    ("script", "contenders", "without"),
    [
        ("bench_stream", STREAMING, ["ONNX", "speechbrain"]),
        ("bench_train", TRAINING, ["speechbrain"]),
        ("bench_offline", OFFLINE, ["speechbrain"]),
    ],
)
def test_tables(
    script: str, contenders: set[str], without: list[str], run: Run, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Memory, which takes processes of its own, is not measured."""
    monkeypatch.syspath_prepend(PROJECT / "tools" / "benchmarks")
    monkeypatch.setattr("bench_offline.memory", lambda *_: 1.0)
    monkeypatch.setattr("resource.setrlimit", lambda *_: None)  # not for the tests after it
    file = tmp_path / "rows.json"
    options = ["--rounds", "2", "--json", str(file), "--without", *without]
    check(run(script, *QUICK, *options), contenders, file)


def test_gpu(run: Run) -> None:
    """On the CPU, which has the same rows without graphs and kernels."""
    rows = table(run("bench_gpu", "--quick", "--device", "cpu", "--rounds", "1", "--parts", "live"))
    assert [row["precision"] for row in rows] == ["float32", "bfloat16"]
    assert all(float(row["ms"]) > 0 for row in rows)


def test_reference_model(run: Run, tmp_path: Path) -> None:
    """It can be loaded, and runs."""
    run("reference_model", "--quick", str(tmp_path / "m.safetensors"))
    file = load_model(tmp_path / "m.safetensors")
    assert (file.model.encoder.dim, len(file.model.encoder.layers)) == (256, 2)
    assert recognizer_of(file).transcribe(np.zeros(16000, dtype=np.float32)).is_final


def test_search(run: Run) -> None:
    rows = table(run("bench_search", *QUICK, "--rounds", "2"))
    assert {row["posteriors"] for row in rows} == {"peaky", "soft"}
    assert {row["contender"] for row in rows} >= SEARCHES  # and flashlight-text's, if there is one
    assert all(float(row["median, ms"]) > 0 for row in rows)


@pytest.mark.parametrize("join", [0, 4])
def test_calls_of_more_recordings_than_there_are_are_refused(
    join: int, run: Run, corpus: Path
) -> None:
    """They were made of fewer, and the table was that of other calls."""
    told = f"--join must be 1 to the 3 recordings read, got {join}"
    with pytest.raises(SystemExit, match=told):
        run("bench_serve", "--manifest", str(corpus / "dev.jsonl"), "--join", str(join))
