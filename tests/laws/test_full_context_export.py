"""Law 4 in full context: an export of any length, alone and as the second pass of a stream."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from asrkit import Endpointer, UserError
from asrkit.backends.check import TOLERANCE
from asrkit.backends.export_metadata import Exported, export_path
from asrkit.backends.onnx import of_file, read
from asrkit.export import onnx
from asrkit.export.__main__ import main as export
from asrkit.export.verification import eager_step, largest_difference
from asrkit.model import FULL
from asrkit.model.attention import MAX_ROWS
from asrkit.model.positions import KINDS
from asrkit.model_file import ModelFile, load_model
from asrkit.runtime import load
from tests.conftest import speech, timed
from tests.laws.test_export import exported_model, file_of, need_onnx
from tests.laws.test_shapes import TOGETHER, TRANSFORMER

WHOLE = Exported("ctc", FULL)
FULL_OPTIONS = ("--chunk-ms", "full")
NOT_EXPORTED = ["compact"]  # ONNX Runtime has no arctangent of float64
REFUSED = ["t5"]  # the graph puts distances at the borders of buckets into the wrong one


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    need_onnx()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model file with its export in full context beside it, as the command writes it."""
    return exported_model(tmp_path_factory.mktemp("full"), file_of(num_layers=1), *FULL_OPTIONS)


def test_any_length(model: Path) -> None:
    """From nothing at all to longer than the graph takes, and rows of several lengths."""
    plain, ours = (load(model, "full", backend=kind) for kind in ("eager", "onnx"))
    assert ours.backend.kind == "onnx"
    assert load(model, "full").backend.kind == "onnx"  # found beside the model
    for seconds in (0.0, 0.01, 0.03, 1.3, 62.0):
        samples = speech(seconds, 5)
        assert timed(ours.transcribe(samples)) == timed(plain.transcribe(samples))
    rows = [speech(2.0, 1), speech(0.5, 2), speech(0.02, 3)]
    batches = (each.transcribe_batch(rows) for each in (ours, plain))
    assert [*map(timed, next(batches))] == [*map(timed, next(batches))]


def test_a_second_pass_of_a_stream(model: Path) -> None:
    """Where a stream's own backend is eager or ONNX, the text is that of two eager passes."""
    samples = np.concatenate([speech(2.0), np.zeros(16000, dtype=np.float32), speech(1.5, 4)])
    options = {"chunk_size": 8, "second_pass": "full", "endpointer": Endpointer(300)}
    plain = load(model, backend="eager", **options)  # type: ignore[arg-type]
    found = load(model, **options)  # type: ignore[arg-type]
    second = found.decoding.second
    assert second is not None
    assert (found.backend.kind, second.engine.backend.kind) == ("eager", "onnx")
    assert timed(found.transcribe(samples)) == timed(plain.transcribe(samples))
    with pytest.raises(UserError, match="no export of this model for chunks of 320 ms"):
        load(model, backend="onnx", **options)  # type: ignore[arg-type]


def test_control_another_models_export(model: Path, tmp_path: Path) -> None:
    """Other weights, or attention that sees less: the file is refused, the numbers are not near."""
    file, path = load_model(model), export_path(model, WHOLE, "onnx")
    other = file_of(num_layers=1)
    with torch.no_grad():
        other.model.head.bias[0] += 1.0
    with pytest.raises(UserError, match="was exported from another model"):
        of_file(path, other.runnable, FULL, 1)
    samples = speech(2.0)[None]
    module, _ = read(path)
    assert largest_difference(file, WHOLE, module, samples) < 1e-4
    assert largest_difference(other, WHOLE, module, samples) > 1e-2


def exported_difference(file: ModelFile, path: Path) -> float:
    onnx.write(eager_step(file, WHOLE), path, WHOLE, file)
    module, found = read(path)
    assert found == WHOLE
    return largest_difference(file, WHOLE, module, speech(6.0)[None])


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        *({"kind": kind} for kind in KINDS if kind not in NOT_EXPORTED),
        {"subsampling": "conv4_valid"},
        TOGETHER,
        TRANSFORMER,
    ],
    ids=str,
)
def test_every_encoder(changes: dict[str, Any], tmp_path: Path) -> None:
    """At lengths that the exporter was not shown, beyond a tile of the attention too."""
    assert MAX_ROWS < 6.0 * 25
    found = exported_difference(file_of(**changes), tmp_path / "full.onnx")
    is_refused = changes.get("kind") in REFUSED  # by the replay
    assert found > TOLERANCE if is_refused else found < 3e-4


@pytest.mark.slow
@pytest.mark.parametrize("kind", NOT_EXPORTED)
def test_those_that_are_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot run this export, .*Atan"):
        exported_difference(file_of(kind), tmp_path / "full.onnx")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--format", "torchscript"], "full context needs --format onnx or onnx-int8"),
        (["--format", "onnx", "--what", "model"], "--what must be ctc for this model as onnx in"),
    ],
)
def test_mistakes(
    model: Path, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(["--model", str(model), "--chunk-ms", "full", *arguments]) == 2
    assert told in capsys.readouterr().err
