"""Every script that the documentation names is run by a test, and uses only names that exist.

The list comes from the documentation itself, so a new script cannot be forgotten.
"""

import ast
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import PROJECT
from tools import demo

FOLDERS = ("tools", "tools/benchmarks", "docs/examples")
NAMED = re.compile(r"\b(tools|tools/benchmarks|docs/examples)/(\w+)\.py\b")
QUICK = "--quick --threads 1 --rounds 1"
RUNS = {  # arguments of scripts that no other test runs; {dev} is a manifest, {out} a folder
    "bench_decode": f"{QUICK} --model small-en-alnum --manifest {{dev}}",
    "bench_gpu": "--quick --device cpu --rounds 1 --parts live",
    "make_calls": "{dev} {out}/calls",
    "reference_model": "--quick {out}/m.safetensors",
}
LONG = {  # a server and its clients, or seconds to minutes
    "bench_offline": f"{QUICK} --without speechbrain",
    "bench_search": QUICK,
    "bench_serve": "--quick --streams 2 --seconds 1 --rounds 1 --misbehaving 1 --manifest {dev}",
    "bench_stream": f"{QUICK} --without speechbrain Emformer",
    "bench_train": f"{QUICK} --without speechbrain",
    "ttfs": "--quick --callers 2 --seconds 1 --turns 2 --manifest {dev}",
}
NOT_RUN = {
    "demo": "trains a model, as tests/recipes do, and opens a microphone",
    "sherpa_binary": "needs a binary of sherpa-onnx-bin; bench_serve starts it",
    "sherpa_server": "needs an exported folder; bench_serve starts it",
    "check_inputs": "needs the programs ffmpeg, ffprobe, sox and lame",
    "accented_voice": "needs espeak-ng; what it shares with recipes/digits is tested there",
}
SCRIPTS = sorted(path for folder in FOLDERS for path in (PROJECT / folder).glob("*.py"))


def documents() -> Iterator[Path]:
    yield PROJECT / "README.md"
    for folder in ("docs", "recipes", "tools", "deploy"):
        yield from (PROJECT / folder).rglob("*.md")


def documented() -> list[str]:
    """The names of scripts in documents and in the scripts' own docstrings, with their folders."""
    headings = [ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "" for path in SCRIPTS]
    texts = [path.read_text("utf-8") for path in documents()] + headings
    found = {f"{folder}/{name}" for text in texts for folder, name in NAMED.findall(text)}
    return sorted(name for name in found if (PROJECT / f"{name}.py").is_file())


DOCUMENTED = documented()


@pytest.mark.parametrize("script", DOCUMENTED)
def test_a_test_runs_every_documented_script(script: str) -> None:
    name = script.rpartition("/")[2]
    here = Path(__file__)
    tests = [path for path in (PROJECT / "tests").rglob("*.py") if path != here]
    named = re.compile(rf"\b{name}\b")
    elsewhere = any(named.search(path.read_text("utf-8")) for path in tests)
    assert elsewhere or name in RUNS.keys() | LONG.keys() | NOT_RUN.keys(), (
        f"no test runs {script}.py: add a line to RUNS or LONG"
    )


def is_there(module: str, name: str) -> bool:
    """Whether a module has a name, or a submodule of this name."""
    try:
        return hasattr(importlib.import_module(module), name) or bool(find_spec(f"{module}.{name}"))
    except ModuleNotFoundError:
        return False


def wrong_names(source: str) -> list[str]:
    """Return the names that a script imports from asrkit, and that are not there."""
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    names = [(str(node.module), alias.name) for node in imports for alias in node.names]
    return [".".join(each) for each in names if each[0][:6] == "asrkit" and not is_there(*each)]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_take_only_names_that_exist(path: Path) -> None:
    """Also in functions that a quick run does not reach, such as those for an export."""
    assert wrong_names(path.read_text("utf-8")) == []


def test_control_a_name_of_another_module_is_noticed() -> None:
    assert wrong_names("from asrkit.export import onnx, torchscript") == []
    assert wrong_names("from asrkit.runtime import nothing") == ["asrkit.runtime.nothing"]
    assert wrong_names("from asrkit.nowhere import onnx") == ["asrkit.nowhere.onnx"]


@pytest.mark.parametrize(
    "name", [*RUNS, *(pytest.param(name, marks=pytest.mark.slow) for name in LONG)]
)
def test_a_script_runs(name: str, corpus: Path, tmp_path: Path) -> None:
    places = {"dev": corpus / "dev.jsonl", "out": tmp_path}
    arguments = [each.format(**places) for each in (RUNS | LONG)[name].split()]
    script = next(path for path in SCRIPTS if path.stem == name)
    done = subprocess.run(
        [sys.executable, str(script), *arguments], cwd=PROJECT, capture_output=True,
        text=True, timeout=600,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROJECT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() or (tmp_path / "m.safetensors").is_file()


def test_the_help_of_the_demo_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "run", lambda *command, **_: pytest.fail(f"it runs {command}"))
    for argument, status in (("--help", 0), ("--epochs", 2)):
        monkeypatch.setattr(sys, "argv", ["demo.py", argument])
        with pytest.raises(SystemExit) as ended:
            demo.main()
        assert ended.value.code == status
    assert "usage: demo.py" in capsys.readouterr().out
