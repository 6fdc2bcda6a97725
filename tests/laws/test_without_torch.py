"""What runs a model needs no torch: its export states all that its model file does."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from asrkit.backends.export_metadata import Exported, export_path
from asrkit.backends.onnx import read_graph
from asrkit.errors import UserError
from asrkit.export import onnx
from asrkit.model import FULL, Context
from asrkit.model_file import load_model
from asrkit.model_header import MOST_BYTES
from asrkit.runtime import load
from tests.conftest import PROJECT, RECORDINGS, speech, timed, write_wav
from tests.running import python

package = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

KEPT = PROJECT / "tests" / "kept" / "models"
LIVE = Context(4, 8)
MISSING = object()
WITHOUT = """
import sys
sys.modules["torch"] = None
from asrkit.__main__ import main
print([main(command.split()) for command in sys.argv[1:]])
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model file whose exports, with graphs of tests/kept, are described by this version."""
    path = tmp_path_factory.mktemp("model") / "exported.safetensors"
    path.write_bytes((KEPT / path.name).read_bytes())
    file = load_model(path)
    for context in (LIVE, FULL):
        exported = Exported("ctc", context)
        graph = package.load(KEPT / export_path(path, exported, "onnx").name)
        package.helper.set_model_props(graph, onnx.metadata(exported, file))
        package.save(graph, export_path(path, exported, "onnx"))
    write_wav(path.with_name("a.wav"), speech(3.0))
    path.with_name("a.txt").write_text("a")
    return path


def test_commands_that_run_a_model(model: Path) -> None:
    """With the model file or with the export alone; the texts and words are those of eager."""
    expected = load(model, backend="eager", chunk_size=4, left_context=8, second_pass="full")
    words = expected.transcribe(model.with_name("a.wav")).words
    assert words
    live = "--chunk-ms 160 --left-ms 320"
    alone, full = (f"exported.{each}.onnx" for each in ("160-320ms", "full"))
    commands = [
        f"decode --model {model.name} {live} --second-pass full --format jsonl a.wav",
        f"decode --model {alone} --second-pass full --format jsonl a.wav",
        f"stream --model {alone} a.wav",
        f"stream --model {full} a.wav",
        f"align --model {model.name} --text a a.wav",
        f"info {full}",
        f"bench --model {alone} --streams 1",
        "data import folder . --output corpus --dev 0",
    ]
    done = python(WITHOUT, *commands, cwd=model.parent)
    assert done.stdout.splitlines()[-1] == str([0] * len(commands)), done.stderr
    assert f"file        {full}" in done.stdout
    assert "decodes at  full" in done.stdout
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for result in results[:2]:
        assert [(each["text"], each["start"], each["end"]) for each in result["words"]] == [
            (each.text, each.start, each.end) for each in words
        ]


def test_the_ready_model() -> None:
    """Its exports are those of its file; live and final texts are those of eager."""
    file = load_model("small-en-alnum")
    assert file.path is not None
    for context in (file.config.context.live, FULL):
        path = export_path(file.path, Exported("ctc", context), "onnx")
        assert read_graph(path, 1).description.model == file.checksum
    recordings = sorted(RECORDINGS.glob("*/audio/**/*.flac"))[::3]
    for second_pass in ("off", "full"):
        options = f"--model small-en-alnum --second-pass {second_pass} --format jsonl"
        done = python(WITHOUT, f"decode {options} {' '.join(map(str, recordings))}")
        results = [json.loads(line)["text"] for line in done.stdout.splitlines()[:-1]]
        second = second_pass if second_pass == "full" else None
        eagerly = load("small-en-alnum", backend="eager", second_pass=second)
        assert results == [eagerly.transcribe(each).text for each in recordings], done.stderr
        assert len({*results}) > 5


def test_evaluate_measures_the_contexts_of_the_exports() -> None:
    done = python(WITHOUT, f"evaluate --model small-en-alnum {RECORDINGS / 'an4' / 'dev.jsonl'}")
    names = [line.partition("  ")[0] for line in done.stdout.splitlines()]
    assert names == ["chunk", "full", "320+160 ms", "[0]"], done.stderr


def test_what_needs_torch_says_so_in_one_line(model: Path) -> None:
    commands = [
        f"decode --model {model.name} --chunk-ms 320 a.wav",
        f"decode --model {model.name} --backend eager a.wav",
        f"pack --model {model.name} --output other.safetensors",
        f"verify --model {model.name} a.wav",
        "train --config digits",
        "data check train.jsonl",
        f"export --model {model.name} --format onnx",
    ]
    done = python(WITHOUT, *commands, cwd=model.parent)
    assert done.stdout.splitlines()[-1] == str([2] * len(commands))
    lines = done.stderr.splitlines()
    assert len(lines) == len(commands)
    assert all("torch" in line and "pip install" in line for line in lines)
    assert "has no export for 320 ms, left 320 ms beside it" in lines[0]
    assert "backend eager: torch not installed" in lines[1]


def test_an_export_alone_is_its_model(model: Path, tmp_path: Path) -> None:
    """Moved away from its model file; full context is its neighbour, a second pass too."""
    for name in ("exported.160-320ms.onnx", "exported.full.onnx"):
        (tmp_path / name).write_bytes(model.with_name(name).read_bytes())
    samples = speech(4.0, seed=2)
    for options in ({}, {"second_pass": "full"}, {"chunk_size": "full"}):
        live = {"chunk_size": 4, "left_context": 8} | options
        expected = load(model, backend="eager", **live)  # type: ignore[arg-type]
        alone = load(tmp_path / "exported.160-320ms.onnx", **options)  # type: ignore[arg-type]
        assert alone.backend.kind == "onnx"
        assert alone.context == expected.context
        assert timed(alone.transcribe(samples)) == timed(expected.transcribe(samples))
    full = load(tmp_path / "exported.full.onnx", chunk_size=4)
    assert (full.context, full.left_context) == ("160 ms", 8)
    for other in ({"chunk_size": 8}, {"backend": "eager"}):
        with pytest.raises(UserError, match="is missing: put it there"):
            load(tmp_path / "exported.160-320ms.onnx", **other)  # type: ignore[arg-type]


def test_both_passes_are_int8(model: Path, tmp_path: Path) -> None:
    for name in ("exported.160-320ms", "exported.full"):
        graph = package.load(model.with_name(f"{name}.onnx"))
        (entry,) = (each for each in graph.metadata_props if each.key == "asrkit")
        entry.value = json.dumps(json.loads(entry.value) | {"precision": "int8"})
        package.save(graph, tmp_path / f"{name}.int8.onnx")
    made = load(tmp_path / "exported.160-320ms.int8.onnx", second_pass="full")
    assert made.decoding.second is not None
    both = made.backend, made.decoding.second.engine.backend
    assert [each.kind for each in both] == ["onnx-int8"] * 2


@pytest.mark.parametrize(
    ("change", "problem"),
    [({"tokenizer": "x"}, "'tokenizer'"), ({"tokenizer": None}, "symbol table"),
     ({"tokenizer": "WyJhIl0="}, "12 labels, its tokenizer 2"), ({"probe": "AAAA"}, "probe is dam"),
     ({"probe": 5}, "probe is damaged"), ({"training": [1]}, "'training'"),
     ({"config": {"search": {"kind": "magic"}, "context": {"chunk_size": 0}}}, "magic"),
     ({"config": MISSING}, "'config'"), ({"parameters": MISSING}, "'parameters'"),
     ({"parameters": math.inf}, "'parameters'"), ({"licence": 5}, "'licence'"),
     ({"tokenizer": MISSING}, "name its model file"), ({"probe": MISSING}, "no model file"),
     ({"languages": ["en"] * (MOST_BYTES >> 2)}, "description is longer")],
)  # fmt: skip
def test_a_description_that_is_damaged(
    model: Path, tmp_path: Path, change: dict, problem: str
) -> None:
    path = tmp_path / "other.onnx"
    graph = package.load(model.with_name("exported.160-320ms.onnx"))
    (entry,) = (each for each in graph.metadata_props if each.key == "asrkit")
    values = json.loads(entry.value) | change
    entry.value = json.dumps({key: each for key, each in values.items() if each is not MISSING})
    package.save(graph, path)
    with pytest.raises(UserError, match=problem) as error:
        load(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("former", "later", "problem"),
    [(b'["a", "b"', b'["b", "a"', "from another model"),
     (b": 20.0, ", b": 30.0, ", "from another model"),
     (b'"U8"', b'"F8_E4M3"', "has no tokenizer")],
)  # fmt: skip
def test_an_export_does_not_hide_a_damaged_model_file(
    model: Path, tmp_path: Path, former: bytes, later: bytes, problem: str
) -> None:
    """Its checksum is not computed here, but the export states its tokenizer and configuration."""
    damaged, export = tmp_path / model.name, model.with_name("exported.160-320ms.onnx")
    (tmp_path / export.name).write_bytes(export.read_bytes())
    length, content = model.read_bytes()[:8], model.read_bytes()[8:]
    assert content.count(former) == 1
    size = int.from_bytes(length, "little") + len(later) - len(former)
    damaged.write_bytes(size.to_bytes(8, "little") + content.replace(former, later))
    with pytest.raises(UserError, match=problem):
        load(damaged, 4, 8, backend="onnx")


def test_control_the_probe_notices_other_weights(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "other.onnx"
    graph = package.load(model.with_name("exported.160-320ms.onnx"))
    array = max(graph.graph.initializer, key=lambda each: np.prod(each.dims))
    changed = package.numpy_helper.to_array(array).copy()
    changed.flat[0] += 1.0
    array.CopyFrom(package.numpy_helper.from_array(changed, array.name))
    package.save(graph, path)
    with pytest.raises(ValueError, match="differs from eager by"):
        load(path)
    assert read_graph(path, 1).description.model == load_model(model).checksum


def test_onnx_runtime_writes_no_identity_of_this_machine(model: Path, tmp_path: Path) -> None:
    """It does, from version 1.29 on, before it sends telemetry: the control.

    Both run without the variables by which ONNX Runtime knows a continuous integration, where it
    sends nothing.
    """
    ours, theirs = tmp_path / "a", tmp_path / "b"
    for folder, program in (
        (ours, "import sys, asrkit; asrkit.load(sys.argv[1])"),
        (theirs, "import onnxruntime, time; time.sleep(1)"),
    ):
        folder.mkdir()
        alone = f"import os; os.environ.clear(); os.environ['TMPDIR'] = {str(folder)!r}"
        done = python(f"{alone}; {program}", model.with_name("exported.160-320ms.onnx"))
        assert done.returncode == 0, done.stderr
    assert [*ours.iterdir()] == []
    version = tuple(map(int, onnxruntime.__version__.split(".")[:2]))
    assert [each.name for each in theirs.iterdir()] == [".ses"] * (version >= (1, 29))
