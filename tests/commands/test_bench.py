"""asrkit bench: what it prints, what it writes, what it refuses."""

from collections.abc import Callable
from pathlib import Path

import pytest

from asrkit.commands.bench import CHUNKS, main, seconds_of
from asrkit.model import Context
from asrkit.model_file import save_model
from asrkit.runtime import Batcher, recognizer_of
from tests.laws.test_export import file_of


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_model(tmp_path / "model.safetensors", file_of())
    return tmp_path / "model.safetensors"


def test_the_table(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", str(model), "--streams", "1,3", "--chunk-ms", "160"]) == 0
    shown = capsys.readouterr()
    assert "not measured: backend onnx: no export of this model for chunks of 160 ms" in shown.err
    _, *rows = shown.out.splitlines()
    assert [row.split()[:3] for row in rows] == [["eager", "1", "1"], ["eager", "1", "3"]]
    for streams, row in zip((1, 3), rows, strict=True):
        p50, p95, p99, a_core = map(float, row.split()[4:])
        assert 0 < p50 <= p95 <= p99
        assert a_core == pytest.approx(streams * 160 / p50, rel=1e-2)


def test_every_stream_is_stepped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that leaves a stream out would look fast."""
    recognizer = recognizer_of(file_of(), Context(4, 8))
    assert len(seconds_of(recognizer, 4)) == CHUNKS
    # Not Batcher.step itself: the worker of a server of other tests may take a step meanwhile.
    lazy = type("Lazy", (Batcher,), {"step": lambda self: [None] * 3})
    monkeypatch.setattr("asrkit.runtime.Batcher", lazy)
    with pytest.raises(AssertionError):
        seconds_of(recognizer, 4)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--backends", "onnx"], "no export of this model"),
        (["--backends", "fast"], "backend must be one of eager"),
        (["--threads", "0"], "--threads: must be a whole number from 1"),
        (["--streams", "1,x"], "--streams: must be a whole number from 1 to 100000, got 'x'"),
        (["--chunk-ms", "50"], "must be a multiple of 40 ms"),
        (["--chunk-ms", "full"], "--chunk-ms must be a chunk, got full: bench measures streams"),
    ],
)
def test_mistakes(
    model: Path, options: list[str], problem: str, refused: Callable[..., str]
) -> None:
    assert problem in refused("bench", "--model", model, *options)
