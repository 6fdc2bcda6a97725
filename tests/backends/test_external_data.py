"""Weights beside a graph: the same numbers, and no other file than `data_path` is opened."""

from collections.abc import Callable
from pathlib import Path

import pytest

from asrkit.backends import build_backend
from asrkit.backends.export_metadata import Exported, data_path, export_path
from asrkit.backends.onnx import open_session
from asrkit.errors import UserError
from asrkit.export import onnx
from asrkit.export.__main__ import main as export
from asrkit.model import Context
from asrkit.model_file import ModelFile, load_model
from tests.conftest import PROJECT

package = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
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

    def write(_: object, path: Path, exported: Exported, file: ModelFile) -> None:
        graph = ir.load(KEPT / export_path(model, exported, "onnx").name)
        graph.metadata_props.update(onnx.metadata(exported, file))
        onnx.save(graph, path)

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


def test_the_export_is_found_and_equals_eager(large: Path, tmp_path: Path) -> None:
    """Loading compares it with eager. Other programs find its data, too."""
    assert build_backend(None, load_model(large).runnable, CONTEXT).kind == "onnx"
    path = exported(large)
    assert path.stat().st_size < data_path(path).stat().st_size * 20
    assert not [*large.parent.glob(".asrkit-*")]
    session = onnxruntime.InferenceSession(str(path))
    assert session.get_inputs()[0].name == "feats"
    alone = tmp_path / path.name
    alone.write_bytes(path.read_bytes())
    with pytest.raises(Exception, match=r"\.onnx\.data"):  # without the data, as a control
        onnxruntime.InferenceSession(str(alone))


@pytest.mark.parametrize(
    ("change", "problem"),
    [(Path.unlink, "which is missing: put it there"),
     (lambda path: path.write_bytes(path.read_bytes()[:-1]), "is not a file that asrkit export"),
     (lambda path: path.write_bytes(path.read_bytes()[::-1]), "differs from eager by")],
)  # fmt: skip
def test_data_that_is_not_that_of_the_graph(
    moved: Path, change: Callable[[Path], object], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    change(data_path(exported(moved)))
    file = load_model(moved).runnable
    with pytest.raises(UserError, match=problem) as error:
        build_backend("onnx", file, CONTEXT)
    assert "\n" not in str(error.value)
    assert build_backend(None, file, CONTEXT).kind == "eager"
    assert "running eagerly: " in caplog.text


def stated(path: Path, location: str) -> None:
    """Change the first place of weights that the graph states."""
    model = package.load(path, load_external_data=False)
    tensor = next(each for each in model.graph.initializer if each.external_data)
    (entry,) = (each for each in tensor.external_data if each.key == "location")
    entry.value = location
    package.save(model, path)


@pytest.mark.parametrize(
    "location", ["../secret", "/etc/passwd", "..", "", "a\\b", "other.data", "exported.safetensors"]
)
def test_a_hostile_location(moved: Path, location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path, file = exported(moved), load_model(moved).runnable
    monkeypatch.chdir(moved.parent)
    stated(path, data_path(path).name)  # a control
    assert build_backend("onnx", file, CONTEXT).kind == "onnx"
    stated(path, location)
    with pytest.raises(UserError, match=f"its weights must be in {data_path(path).name}"):
        build_backend("onnx", file, CONTEXT)


def test_a_location_elsewhere_in_a_graph(moved: Path) -> None:
    """A constant of a node can be in another file too."""
    path, file = exported(moved), load_model(moved).runnable
    model = package.load(path, load_external_data=False)
    external = next(each for each in model.graph.initializer if each.external_data)
    node = package.helper.make_node("Constant", [], ["hidden"], value=external)
    model.graph.node.insert(0, node)
    package.save(model, path)
    with pytest.raises(UserError, match="its weights must be in"):
        build_backend("onnx", file, CONTEXT)


def test_a_graph_without_data_names_no_file_of_the_current_folder(
    moved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime would look there for the weights of a graph that it gets as bytes."""
    content = exported(moved).read_bytes()
    monkeypatch.chdir(moved.parent)
    onnxruntime.InferenceSession(content)  # as a control
    with pytest.raises(Exception, match="data"):
        open_session(content)
