"""Law 6: imports point down, and importing asrkit changes nothing."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from asrkit.extras import PACKAGES, pip_install
from tests.conftest import PROJECT, speech, write_wav
from tests.running import python, talkative_model

LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def linted(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts of pyproject.toml in a folder with a copy of the code."""
    pytest.importorskip("importlinter")
    return python(LINT, "--no-cache", cwd=folder, PYTHONPATH=str(folder))


def test_imports_point_down() -> None:
    done = linted(PROJECT)
    assert done.returncode == 0, done.stdout


def test_control_an_import_that_no_contract_allows_is_noticed(tmp_path: Path) -> None:
    """One for each contract, at the top of a module and inside a function."""
    shutil.copytree(PROJECT / "asrkit", tmp_path / "asrkit", ignore=shutil.ignore_patterns("*.st*"))
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    for path, line in {
        "model/attention.py": "from asrkit.config.schema import Config",
        "train.py": "import asrkit.training.trainer",
        "serve/limits.py": "def f():\n    from asrkit import data",
        "report/__init__.py": "import asrkit.export",
        "cli/table.py": "import asrkit.evaluation",
        "data/sampling.py": "from asrkit.config.schema import Config",
        "config/kinds.py": "from asrkit import lm",
        "runtime/session.py": "from asrkit import load",
        "__init__.py": "from asrkit.training import trainer",
        "stranger.py": "",  # a module without a layer
    }.items():
        with (tmp_path / "asrkit" / path).open("a") as file:
            file.write(f"\n{line}\n")
    told = linted(tmp_path).stdout
    count = (PROJECT / "pyproject.toml").read_text().count("[[tool.importlinter.contracts]]")
    assert f"Contracts: 0 kept, {count} broken." in told
    assert "asrkit.stranger" in told


def circular(graph: Any) -> list[tuple[str, str]]:
    """Return the imports between modules that are part of a circle."""
    return [
        (importer, imported)
        for importer in sorted(graph.modules)
        for imported in graph.find_modules_directly_imported_by(importer)
        if graph.chain_exists(importer=imported, imported=importer)
    ]


def test_no_modules_import_in_a_circle() -> None:
    """And an import that closes a circle of several modules is noticed: the control."""
    graph = pytest.importorskip("grimp").build_graph("asrkit", cache_dir=None)
    assert circular(graph) == []
    graph.add_import(importer="asrkit.errors", imported="asrkit.commands.train")
    assert ("asrkit.errors", "asrkit.commands.train") in circular(graph)


def test_import_is_light_sets_no_global_and_has_public_names_when_used() -> None:
    program = (
        "import sys, random, torch, numpy\n"
        "before = (torch.get_num_threads(), torch.initial_seed(), torch.is_grad_enabled(),\n"
        "          torch.get_default_dtype(), random.getstate(), str(numpy.random.get_state()))\n"
        "import asrkit\n"
        "asrkit.load\n"
        "after = (torch.get_num_threads(), torch.initial_seed(), torch.is_grad_enabled(),\n"
        "         torch.get_default_dtype(), random.getstate(), str(numpy.random.get_state()))\n"
        "heavy = {'torchaudio', 'lhotse', 'tensorboard', 'jiwer', 'sentencepiece',\n"
        "         'sounddevice', 'starlette', 'uvicorn', 'av', 'onnx', 'huggingface_hub'}\n"
        "print(before == after, sorted(heavy & set(sys.modules)))\n"
        "assert {*asrkit.__all__} <= {*dir(asrkit)}\n"
        "asrkit.model.ConformerEncoder\n"
        "from asrkit import *\n"
        "from asrkit import Recognizer, audio, load\n"
        "print([name for name in asrkit.__all__ if name not in globals()], load is asrkit.load)\n"
    )
    done = python(program)
    assert done.stdout == "True []\n[] True\n", done.stderr


@pytest.mark.parametrize(
    "program",
    ["import asrkit; asrkit.UserError; dir(asrkit); hasattr(asrkit, 'nothing')"]
    + [f"from asrkit.__main__ import main; main({argv})" for argv in (["--version"], [], ["x"])],
)
def test_what_needs_no_network_imports_none(program: str) -> None:
    """asrkit's help answers at once: torch, numpy and pydantic take seconds to import."""
    heavy = "{'torch', 'numpy', 'pydantic', 'yaml', 'soundfile'}"
    done = python(f"{program}\nimport sys\nprint(sorted({heavy} & set(sys.modules)))")
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with m.safetensors, x.wav and two.jsonl, of which a text is known."""
    folder = tmp_path_factory.mktemp("small")
    talkative_model(folder / "m.safetensors")
    write_wav(folder / "x.wav", speech(2.0))
    (folder / "two.jsonl").write_text('{"id": "x", "audio": "x.wav", "text": "abc"}\n')
    return folder


HIDE = f"""
import sys
for name in {[name for name in PACKAGES["train"] if name != "torch"]}:
    sys.modules[name] = None
from asrkit.__main__ import main
status = [main(command.split()) for command in sys.argv[1:]]
print(status)
"""


def test_inference_works_without_the_extras(small: Path) -> None:
    """What other extras bring is hidden; all that runs a model works, and says what is missing."""
    model = "--model m.safetensors"
    done = python(
        HIDE,
        f"decode {model} --manifest two.jsonl",
        f"evaluate {model} two.jsonl",
        f"align {model} x.wav --text abc",
        f"stream {model} --chunk-ms 160 x.wav",
        f"verify {model} --chunk-ms 160 x.wav",
        f"pack {model} --output small.safetensors",
        "info small.safetensors",
        "ngram --order 2 two.jsonl --output lm.arpa",
        cwd=small,
    )
    assert done.stdout.splitlines()[-1] == str([0] * 8), done.stderr


def test_what_needs_an_extra_says_which(small: Path) -> None:
    """In one line, before anything is done."""
    model, train = "--model m.safetensors", pip_install("lhotse")
    commands = {
        "train --config digits": f"tensorboard not installed: {train}",
        "report exp": f"jinja2 not installed: {train}",
        "data check two.jsonl": f"pyarrow not installed: {train}",
        f"export {model} --format onnx --output e.onnx --audio x.wav": (
            f"onnx and onnxscript not installed: {train}"
        ),
    }
    done = python(HIDE, *commands, cwd=small)
    assert done.stdout.splitlines()[-1] == str([2] * len(commands))
    names = [command.partition(" two.jsonl")[0].split(" -")[0] for command in commands]
    names[1] = "report"
    lines = [f"asrkit {name}: {why}" for name, why in zip(names, commands.values(), strict=True)]
    assert done.stderr == "".join(f"{line}\n" for line in lines)


def test_control_another_missing_module_is_no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from asrkit.commands.info import main

    monkeypatch.setitem(sys.modules, "asrkit.model_header", None)
    with pytest.raises(ModuleNotFoundError):
        main(["m.safetensors"])
