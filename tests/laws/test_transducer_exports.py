"""Law 4 for transducers: predictor and joiner of an export write what the head in PyTorch does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from asrkit.backends.check import probe
from asrkit.backends.pytorch import eager
from asrkit.build import build_frontend
from asrkit.config.running import parse_search
from asrkit.errors import UserError
from asrkit.export.__main__ import main as export
from asrkit.model import Context, TransducerHead
from asrkit.model_file import load_model
from asrkit.runtime import load, recognizer_of
from tests.conftest import speech, timed, write_manifest
from tests.laws.test_export import exported_model, file_of

CHUNK, LEFT = 8, 16
CONTEXT = Context(CHUNK, LEFT)
HEADS: list[dict[str, Any]] = [
    {"kind": "transducer", "predictor_layers": 2, "predictor_dim": 16, "joint_dim": 24},
    {
        "kind": "transducer", "predictor": "stateless", "context": 3, "predictor_dim": 12,
        "joint_dim": 16, "predictor_norm": True, "activation": "tanh", "ctc_weight": 0.0,
    },
]  # fmt: skip
LIVE = ["--chunk-ms", str(40 * CHUNK), "--left-ms", str(40 * LEFT)]


def part(model: Path, ending: str) -> Path:
    return model.with_name(f"model.320-640ms{ending}.onnx")


@pytest.fixture(scope="module", params=[
    pytest.param(HEADS[0], id="lstm"),
    pytest.param(HEADS[1], id="stateless", marks=pytest.mark.slow),
])  # fmt: skip
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model file with its export to ONNX beside it, as the command writes it."""
    file = file_of("none", num_layers=1, head=request.param)
    model = exported_model(tmp_path_factory.mktemp("exports"), file, *LIVE)
    assert all(part(model, each).is_file() for each in ("", ".predictor", ".joiner"))
    return model


def refuse(*_: object) -> None:
    raise AssertionError("the head in PyTorch was called")


@pytest.mark.parametrize("search", ["greedy", "prefix_beam"])
def test_streams_are_eagers(model: Path, search: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recording, file = speech(5.3, seed=3), load_model(model)
    plain = recognizer_of(file, CONTEXT, parse_search(search), backend="eager")
    wanted = plain.transcribe(recording)
    assert len(set(wanted.text)) > 2
    parts = [recording, recording[:30_000], recording[:100]]
    expected = [timed(plain.transcribe(part)) for part in parts]
    ours = recognizer_of(file, CONTEXT, parse_search(search), backend="onnx")
    for method in ("predict", "join", "project"):
        monkeypatch.setattr(TransducerHead, method, refuse)
    session = ours.start()
    for packet in np.array_split(recording, [1, 300, 20_000, 20_001, 50_000]):
        session.accept(packet)
        session = ours.restore(session.save())
    assert timed(session.finish()) == timed(wanted)
    assert [timed(each) for each in ours.transcribe_batch(parts)] == expected
    with pytest.raises(AssertionError, match="was called"):  # control
        plain.transcribe(recording)


def test_the_export_beside_a_model_is_used(model: Path) -> None:
    found = load(model, chunk_size=CHUNK, left_context=LEFT)
    assert found.backend.kind == "onnx"
    assert found.backend.transducer is not None


def test_parts_that_do_not_fit(model: Path, tmp_path: Path) -> None:
    for path in model.parent.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    copy = tmp_path / model.name
    predictor, joiner = part(copy, ".predictor"), part(copy, ".joiner")
    joiner.write_bytes(predictor.read_bytes())
    with pytest.raises(UserError, match="must be the joiner of an export, got predictor"):
        recognizer_of(load_model(copy), CONTEXT, backend="onnx")
    with pytest.raises(UserError, match="it is the predictor of an export, not its encoder"):
        recognizer_of(load_model(copy), CONTEXT, backend=predictor)
    joiner.unlink()
    with pytest.raises(UserError, match="lacks its joiner"):
        recognizer_of(load_model(copy), CONTEXT, backend="onnx")
    assert load(copy, chunk_size=CHUNK, left_context=LEFT).backend.kind == "eager"


@pytest.mark.parametrize("weight", ["out.bias", "from_predictor.bias"])
def test_control_other_parts_are_noticed(
    model: Path, weight: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe of a model whose weights have changed since."""
    file = load_model(model)
    with torch.no_grad():
        file.model.head.get_parameter(weight)[3] += 0.1
    frontend = build_frontend(file.config.model)
    expected = probe(eager(file.model, CONTEXT), frontend)
    monkeypatch.setattr("asrkit.backends.onnx.check_model", lambda *_: None)
    monkeypatch.setattr("asrkit.backends.onnx.expected_of", lambda *_: expected)
    with pytest.raises(UserError, match="backend onnx differs from eager"):
        recognizer_of(file, CONTEXT, backend=part(model, ""))


@pytest.mark.slow
def test_int8_samples_and_full_context(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights are noise here: seven bits are not enough for their texts."""
    monkeypatch.setattr("asrkit.commands.export.MOST_LOST", 1000.0)
    monkeypatch.setattr("asrkit.backends.check.MOST_ROUNDING", 0.9)
    copy = tmp_path / "model.safetensors"
    copy.write_bytes(model.read_bytes())
    recording, file = speech(5.3, seed=3), load_model(copy)
    text = recognizer_of(file, CONTEXT).transcribe(speech(3.0)).text
    wav = str(model.with_name("a.wav"))
    dev = write_manifest(tmp_path / "dev.jsonl", {"id": "a", "audio": wav, "text": text})
    arguments = ["--model", str(copy), "--audio", wav]
    assert export([*arguments, *LIVE, "--format", "onnx-int8", "--manifest", str(dev)]) == 0
    assert recognizer_of(file, CONTEXT, backend="onnx-int8").transcribe(recording).text
    output = str(tmp_path / "samples.onnx")
    options = [*arguments, *LIVE, "--format", "onnx", "--what", "model", "--output", output]
    assert export(options) == 0
    assert (tmp_path / "samples.joiner.onnx").is_file()
    assert export([*arguments, "--format", "onnx", "--chunk-ms", "full"]) == 0
    for backend in ("onnx", "eager"):
        whole = load(copy, chunk_size="full", backend=backend)
        assert whole.backend.kind == backend
        assert timed(whole.transcribe(recording)) == timed(
            load(copy, chunk_size="full", backend="eager").transcribe(recording)
        )
