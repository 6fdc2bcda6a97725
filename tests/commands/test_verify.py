"""`asrkit verify` finds streaming equal to offline for a model of every position encoding."""

from pathlib import Path

import pytest
import soundfile

from asrkit.commands import verify
from asrkit.config.schema import parse_config
from asrkit.model_file import ModelFile, save_model
from asrkit.runtime.long_audio import Span
from asrkit.text import CharTokenizer
from tests.conftest import feats_of, fitted, speech, tiny_model
from tests.laws.test_positions import forget
from tests.running import run
from tests.test_model_file import SIZES


@pytest.mark.parametrize("kind", ["relative", "shaw", "sinusoidal", "rotary"])
def test_a_kind(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """tests/laws hold all of them."""
    path = saved(tmp_path, {"model": SIZES | {"position": {"kind": kind}}}, position=kind)
    assert verify.main(["--model", str(path), str(tmp_path / "x.wav")]) == 0
    shown = capsys.readouterr().out
    assert "streaming equals offline" in shown
    assert shown.count("equal") == 7  # settings: four of the menu, full context; second pass, end


def saved(folder: Path, more: dict, **changes: object) -> Path:
    """Write a recording, and a model that has much to say of it."""
    samples, path = speech(1.5), folder / "m.safetensors"
    soundfile.write(folder / "x.wav", samples, 16000)
    known = {"data": {"train": "a", "dev": "b"}, "training": {"output_dir": "c"}, "model": SIZES}
    model = fitted(tiny_model(**changes).float(), feats_of(samples))  # type: ignore[arg-type]
    labels = CharTokenizer(list("abcdefghij "))
    save_model(path, ModelFile(model, labels, parse_config(known | more), {}))
    return path


@pytest.fixture
def trained_ahead(tmp_path: Path) -> list[str]:
    """Arguments for a model that was trained with 120 ms ahead, and a recording."""
    context = {"chunk_sizes": [4], "right_contexts": [0, 3], "chunk_size": 8, "right_context": 2}
    return ["--model", str(saved(tmp_path, {"context": context})), str(tmp_path / "x.wav")]


def test_right_contexts_and_second_pass(
    trained_ahead: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify.main(trained_ahead) == 0
    lines = [line.split("  ")[1] for line in capsys.readouterr().out.splitlines()[2:-1]]
    live, chunks = "320+80 ms", ("160+80 ms", "160 ms", "160+120 ms")
    expected = [f"{chunk}, left 2560 ms" for chunk in (live, *chunks)]
    assert lines == [*expected, "full", f"second pass ({live}, full)"]
    assert verify.main([*trained_ahead, "--chunk-ms", "640"]) == 0
    assert "640+120 ms, left 2560 ms" in capsys.readouterr().out


def test_control_second_pass_over_other_frames(
    trained_ahead: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Span, "of", lambda span, frames: frames[::-1])
    assert verify.main(trained_ahead) == 1
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "second pass" in line)
    assert line.endswith("FAILED")


def test_control_a_state_that_is_dropped_between_steps(
    model: Path, wav: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(monkeypatch)
    assert run("verify", "--model", model, "--chunk-ms", 320, wav) == 1
    assert "FAILED" in capsys.readouterr().out
