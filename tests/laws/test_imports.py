"""Law 6: imports point down, and importing asrkit changes nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from asrkit.extras import PACKAGES, pip_install
from tests.conftest import PROJECT
from tools.imports import PACKAGE, circles, picture, sources, upward


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


def test_no_modules_import_in_a_circle() -> None:
    assert circles(sources()) == []


def test_control_a_circle_is_noticed() -> None:
    two = {"asrkit.a": "from asrkit.b import c", "asrkit.b": "def f():\n    import asrkit.a"}
    three = {"asrkit.d": "import asrkit.e", "asrkit.e": "import asrkit.a, asrkit.f"}
    assert circles(two | three | {"asrkit.f": "from asrkit import d"}) == [
        ["asrkit.a", "asrkit.b"], ["asrkit.d", "asrkit.e", "asrkit.f"],
    ]  # fmt: skip


def test_the_picture_has_every_line() -> None:
    count = sum(len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py"))
    assert picture()[-1].split() == [str(count)]


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_import_is_light_sets_no_global_and_has_public_names_when_used() -> None:
    program = (
        "import sys, random, torch, numpy\n"
        "before = (torch.get_num_threads(), torch.initial_seed(), torch.is_grad_enabled(),\n"
        "          torch.get_default_dtype(), random.getstate(), str(numpy.random.get_state()))\n"
        "import asrkit\n"
        "asrkit.load\n"
        "after = (torch.get_num_threads(), torch.initial_seed(), torch.is_grad_enabled(),\n"
        "         torch.get_default_dtype(), random.getstate(), str(numpy.random.get_state()))\n"
        "heavy = {'torchaudio', 'lhotse', 'tensorboard', 'matplotlib', 'jiwer', 'sentencepiece',\n"
        "         'sounddevice', 'starlette', 'uvicorn', 'av', 'onnx', 'huggingface_hub'}\n"
        "print(before == after, sorted(heavy & set(sys.modules)))\n"
        "assert {*asrkit.__all__} <= {*dir(asrkit)}\n"
        "asrkit.model.ConformerEncoder\n"
        "from asrkit import *\n"
        "from asrkit import Recognizer, audio, load\n"
        "print([name for name in asrkit.__all__ if name not in globals()], load is asrkit.load)\n"
    )
    assert run(program) == "True []\n[] True"


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


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with m.safetensors, x.wav and two.jsonl, of which a text is known."""
    import soundfile

    from tests.conftest import speech
    from tests.running import talkative_model

    folder = tmp_path_factory.mktemp("small")
    talkative_model(folder / "m.safetensors")
    soundfile.write(folder / "x.wav", speech(2.0), 16000)
    (folder / "two.jsonl").write_text('{"id": "x", "audio": "x.wav", "text": "abc"}\n')
    return folder


HIDE = f"""
import sys
for name in {PACKAGES["train"] + PACKAGES["recipes"] + PACKAGES["onnx"]}:
    sys.modules[name] = None
from asrkit.__main__ import main
status = [main(command.split()) for command in sys.argv[1:]]
print(status)
"""


def without_extras(
    folder: Path, environment: dict[str, str], *commands: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HIDE, *commands], cwd=folder, env=environment,
        capture_output=True, text=True, check=True,
    )  # fmt: skip


def test_inference_works_without_the_extras(small: Path, environment: dict[str, str]) -> None:
    """What other extras bring is hidden; all that runs a model works, and says what is missing."""
    model = "--model m.safetensors"
    done = without_extras(
        small,
        environment,
        f"decode {model} --manifest two.jsonl",
        f"align {model} x.wav --text abc",
        f"stream {model} --chunk-ms 160 x.wav",
        f"export {model} --format torchscript --chunk-ms 160 --output e.ts --audio x.wav",
        f"verify {model} --chunk-ms 160 --left-ms 1280 --exported e.ts x.wav",
        f"pack {model} --output small.safetensors",
        "info small.safetensors",
        "ngram --order 2 two.jsonl --output lm.arpa",
    )
    assert done.stdout.splitlines()[-1] == str([0] * 8), done.stderr
    jiwer = f"jiwer not installed: {pip_install('jiwer')}"
    told = f"asrkit decode: error rates are not computed: {jiwer}\n"
    assert told in done.stderr


def test_what_needs_an_extra_says_which(small: Path, environment: dict[str, str]) -> None:
    """In one line, before anything is done."""
    model, train = "--model m.safetensors", pip_install("lhotse")
    commands = {
        f"evaluate {model} two.jsonl": f"jiwer not installed: {train}",
        f"tune {model} --lm lm.arpa two.jsonl": f"jiwer not installed: {train}",
        "train --config digits": f"tensorboard not installed: {train}",
        "report exp": f"lhotse not installed: {train}",
        "data check two.jsonl": f"lhotse not installed: {train}",
        f"export {model} --format onnx --output e.onnx --audio x.wav": (
            f"onnx and onnxscript and onnxruntime not installed: {pip_install('onnx')}"
        ),
    }
    done = without_extras(small, environment, *commands)
    assert done.stdout.splitlines()[-1] == str([2] * len(commands))
    names = [command.partition(" two.jsonl")[0].split(" -")[0] for command in commands]
    names[3] = "report"
    lines = [f"asrkit {name}: {why}" for name, why in zip(names, commands.values(), strict=True)]
    assert done.stderr == "".join(f"{line}\n" for line in lines)


def test_control_another_missing_module_is_no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from asrkit.commands.info import main

    monkeypatch.setitem(sys.modules, "asrkit.model_file", None)
    with pytest.raises(ModuleNotFoundError):
        main(["m.safetensors"])
