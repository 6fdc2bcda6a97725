"""Law 6: imports point down, and importing asrkit changes nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT
from tools.imports import PACKAGE, picture, upward


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_imports_point_down(path: Path) -> None:
    assert not upward(path, path.read_text())


def test_control_an_upward_import_is_noticed() -> None:
    path = PACKAGE / "model" / "attention.py"
    assert upward(path, "from asrkit.config import Config") == {"config"}
    assert upward(path, "def f():\n    from asrkit import audio") == {"audio"}
    assert upward(PACKAGE / "runtime" / "x.py", "import asrkit.training.trainer") == {"training"}


def test_the_picture_has_every_line() -> None:
    count = sum(len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py"))
    assert picture()[-1].split() == [str(count)]


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_import_is_light_and_sets_no_global() -> None:
    program = (
        "import sys, random, torch, numpy\n"
        "before = (torch.get_num_threads(), torch.initial_seed(), torch.is_grad_enabled(),\n"
        "          torch.get_default_dtype(), random.getstate(), str(numpy.random.get_state()))\n"
        "import asrkit\n"
        "asrkit.load\n"
        "after = (torch.get_num_threads(), torch.initial_seed(), torch.is_grad_enabled(),\n"
        "         torch.get_default_dtype(), random.getstate(), str(numpy.random.get_state()))\n"
        "heavy = {'torchaudio', 'lhotse', 'tensorboard', 'matplotlib', 'jiwer', 'sentencepiece',\n"
        "         'sounddevice', 'starlette', 'uvicorn', 'av', 'onnx'}\n"
        "print(before == after, sorted(heavy & set(sys.modules)))\n"
    )
    assert run(program) == "True []"


@pytest.mark.parametrize(
    "program",
    ["import asrkit; asrkit.UserError; dir(asrkit); hasattr(asrkit, 'nothing')"]
    + [f"from asrkit.__main__ import main; main({argv})" for argv in (["--version"], [], ["x"])],
)
def test_what_needs_no_network_imports_none(program: str) -> None:
    """asrkit's help answers at once: torch, numpy and pydantic take seconds to import."""
    heavy = "{'torch', 'numpy', 'pydantic', 'yaml', 'soundfile'}"
    said = run(f"{program}\nimport sys\nprint(sorted({heavy} & set(sys.modules)))")
    assert said.splitlines()[-1] == "[]"


def test_public_names_are_there_when_used() -> None:
    program = (
        "import asrkit\n"
        "assert {*asrkit.__all__} <= {*dir(asrkit)}\n"
        "asrkit.model.ConformerEncoder, asrkit.load\n"
        "from asrkit import *\n"
        "from asrkit import Recognizer, audio, load\n"
        "print([name for name in asrkit.__all__ if name not in globals()], load is asrkit.load)\n"
    )
    assert run(program) == "[] True"


def test_inference_works_without_the_training_packages(tmp_path: Path) -> None:
    """torchaudio, lhotse, tensorboard and matplotlib are hidden; a file is decoded all the same."""
    import soundfile

    from asrkit.config import parse_config
    from asrkit.model_file import ModelFile, save_model
    from asrkit.text import CharTokenizer
    from tests.conftest import speech, tiny_model

    sizes = {"dim": 24, "num_layers": 3, "ffn_dim": 48, "kernel_size": 5}
    config = parse_config(
        {"data": {"train": "a", "dev": "b"}, "training": {"output_dir": "c"}, "model": sizes}
    )
    tokenizer = CharTokenizer(list("abcdefghij "))
    save_model(tmp_path / "m.safetensors", ModelFile(tiny_model().float(), tokenizer, config, {}))
    soundfile.write(tmp_path / "x.wav", speech(1.0), 16000)
    program = (
        "import sys\n"
        "for name in ('torchaudio', 'lhotse', 'tensorboard', 'matplotlib'):\n"
        "    sys.modules[name] = None\n"
        "from asrkit.decode import main\n"
        f"sys.exit(main(['--model', r'{tmp_path}/m.safetensors', r'{tmp_path}/x.wav']))\n"
    )
    assert run(program)
