"""Weights beside a graph: the same numbers, and nothing but the two files that belong together."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from asrkit.backends import build_backend
from asrkit.backends.export_metadata import Exported, export_path
from asrkit.backends.external_data import data_path, read_data
from asrkit.errors import UserError
from asrkit.export import int8, onnx
from asrkit.export.__main__ import main as export
from asrkit.export.verification import eager_step
from asrkit.model import Context
from asrkit.model_file import ModelFile, load_model
from tests.conftest import PROJECT

package = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime", minversion="1.24")  # earlier: refused
ir = pytest.importorskip("onnxscript").ir

KEPT = PROJECT / "tests" / "kept" / "models"
CONTEXT = Context(4, 8)
OPTIONS = ["--chunk-ms", "160", "--left-ms", "320", "--format", "onnx"]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model file whose export has more weights than one file may hold.

    The graph is that of an export which tests/kept has: the exporter takes 20 s.
    """
    model = tmp_path_factory.mktemp("large") / "exported.safetensors"
    model.write_bytes((KEPT / model.name).read_bytes())

    def write(_: object, path: Path, exported: Exported, file: ModelFile, name: str) -> None:
        graph = ir.load(KEPT / export_path(model, exported, "onnx").name)
        graph.metadata_props.update(onnx.metadata(exported, file))
        onnx.save(graph, path, name)
        onnx.seal(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx, "MOST_BYTES", 1000)
        patch.setattr(onnx, "write", write)
        assert export(["--model", str(model), *OPTIONS]) == 0
    return model


@pytest.fixture
def moved(large: Path, tmp_path: Path) -> Path:
    """A copy of the model with its export."""
    for path in (large, exported(large), data_path(exported(large))):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path / large.name


def exported(model: Path) -> Path:
    return export_path(model, Exported("ctc", CONTEXT), "onnx")


def test_the_export_is_found_and_equals_eager(large: Path) -> None:
    """Loading compares it with eager."""
    assert build_backend(None, load_model(large), CONTEXT).kind == "onnx"
    path = exported(large)
    assert path.stat().st_size < data_path(path).stat().st_size * 20
    assert not [*large.parent.glob(".asrkit-*")]


def test_an_older_onnxruntime_is_named(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method = "add_external_initializers_from_files_in_memory"
    monkeypatch.delattr(onnxruntime.SessionOptions, method)
    with pytest.raises(UserError, match=r"needs onnxruntime 1\.24 or later, .* is installed: pip"):
        build_backend("onnx", load_model(large), CONTEXT)


def test_other_programs_find_the_data(large: Path, tmp_path: Path) -> None:
    path = exported(large)
    session = onnxruntime.InferenceSession(str(path))
    assert session.get_inputs()[0].name == "feats"
    alone = tmp_path / path.name
    alone.write_bytes(path.read_bytes())
    with pytest.raises(Exception, match=r"\.onnx\.data"):  # without the data, as a control
        onnxruntime.InferenceSession(str(alone))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def other(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("change", "problem"),
    [(Path.unlink, "which is missing: put it there"), (cut, r"has \d+ bytes, .* needs \d+"),
     (other, "was changed: export it again")],
)  # fmt: skip
def test_data_that_is_not_that_of_the_graph(
    moved: Path, change: Callable[[Path], None], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    change(data_path(exported(moved)))
    file = load_model(moved)
    with pytest.raises(UserError, match=problem) as error:
        build_backend("onnx", file, CONTEXT)
    assert "\n" not in str(error.value)
    assert build_backend(None, file, CONTEXT).kind == "eager"
    assert "running eagerly: " in caplog.text


def renamed(path: Path, **changes: object) -> None:
    """Change the record of the data, and the locations that the graph states."""
    model = package.load(path, load_external_data=False)
    (record,) = (each for each in model.metadata_props if each.key == "asrkit_data")
    record.value = json.dumps(json.loads(record.value) | changes)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location" and "name" in changes:
                entry.value = str(changes["name"])
    (said,) = (each for each in model.metadata_props if each.key == "asrkit")
    said.value = json.dumps(json.loads(said.value) | {"digest": None})
    package.save(model, path)


@pytest.mark.parametrize(
    "changes",
    [{"name": "../secret"}, {"name": "/etc/passwd"}, {"name": ".."}, {"name": ""}, {"name": "a\\b"},
     {"name": 7}, {"bytes": "many"}, {"bytes": -1}, {"bytes": 1 << 80}, {"sha256": None}],
)  # fmt: skip
def test_a_hostile_record(moved: Path, changes: dict[str, object]) -> None:
    path, file = exported(moved), load_model(moved)
    renamed(path, name="other.data")  # a control: only PATH.data is opened, whatever the name is
    assert build_backend("onnx", file, CONTEXT).kind == "onnx"
    renamed(path, **changes)
    with pytest.raises(UserError):
        build_backend("onnx", file, CONTEXT)


def test_a_graph_cannot_name_a_file_of_the_current_folder(
    moved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that does not cover the weights: ONNX Runtime would look in the current folder."""
    path, file = exported(moved), load_model(moved)
    model = package.load(path, load_external_data=False)
    kept = [each for each in model.metadata_props if each.key != "asrkit_data"]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    package.save(model, path)
    monkeypatch.chdir(path.parent)
    onnxruntime.InferenceSession(path.read_bytes())  # as a control
    with pytest.raises(UserError, match="not a file that asrkit export wrote"):
        build_backend("onnx", file, CONTEXT)


def test_int8_is_that_of_one_file(moved: Path) -> None:
    file: ModelFile = load_model(moved)
    module = eager_step(file, Exported("ctc", CONTEXT))
    two, one = exported(moved), exported(moved).with_name("one.onnx")
    model = package.load(two)
    package.save(model, one)
    assert one.stat().st_size > data_path(two).stat().st_size
    observed = int8.ObservedStep(two, module)
    feats = 17 + torch.randn(
        1, 16, file.model.encoder.num_mels, generator=torch.Generator().manual_seed(0)
    )
    observed(feats, torch.tensor([16]), observed.init_state(1))
    model = package.load(one)
    assert all(np.ptp(bounds) > 0 for bounds in observed.ranges.values())
    graphs = []
    for path in (two, one):
        if path == one:
            drop_record(path)
        int8.quantize(path, module, observed.ranges)
        assert read_data(path, path.read_bytes()).name == ""
        graphs.append(package.load(path, load_external_data=False).graph)
    weights = [{each.name: each for each in graph.initializer} for graph in graphs]
    assert weights[0].keys() == weights[1].keys()
    for name, tensor in weights[0].items():
        ours, theirs = (package.numpy_helper.to_array(each) for each in (tensor, weights[1][name]))
        assert ours.dtype == theirs.dtype
        assert np.array_equal(ours, theirs)
    assert any(each.data_type == package.TensorProto.INT8 for each in weights[0].values())


def drop_record(path: Path) -> None:
    model = package.load(path)
    kept = [each for each in model.metadata_props if each.key != "asrkit_data"]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    package.save(model, path)
