"""Programs that run an export without asrkit, those of docs/examples, write what asrkit does."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

import asrkit
from asrkit import audio
from asrkit.backends.export_metadata import Exported
from asrkit.export import onnx
from asrkit.export.verification import eager_step
from asrkit.model_file import ModelFile, load_model
from tests.conftest import PROJECT, RECORDINGS
from tests.laws.test_export import need_onnx
from tests.running import run

MODEL = "small-en-alnum"
FORGETS = {  # the part of each program that carries the state on, and what does not
    "py": ("self.state = dict(zip(self.state, new, strict=True))", "pass"),
    "mjs": ("this.state[name] = outputs[`new_${name}`];", ";"),
    "cpp": ("part = std::move(*next++);", "(void)part, (void)next;"),
}
Spoken = dict[Path, str]


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Spoken:
    """Three real recordings, and the texts of asrkit's streams."""
    lines = (RECORDINGS / "an4" / "dev.jsonl").read_text(encoding="utf-8").splitlines()
    recognizer, texts = asrkit.load(MODEL, backend="eager"), {}
    for utterance in sorted(map(json.loads, lines), key=lambda each: -each["duration"])[:3]:
        path = tmp_path_factory.mktemp("spoken") / "a.wav"
        samples, rate = soundfile.read(RECORDINGS / "an4" / utterance["audio"], dtype="int16")
        soundfile.write(path, samples, rate, subtype="PCM_16")
        session = recognizer.start()
        for at in range(0, len(samples), 1600):
            session.accept(samples[at : at + 1600])
        texts[path] = session.finish().text
    assert min(map(len, texts.values())) > 10
    return texts


@pytest.fixture(scope="module")
def of_one_stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of fixed shapes, one stream and one chunk, which takes a fifth of the time."""
    need_onnx()

    def inputs(module: Any, exported: Exported, file: ModelFile) -> tuple[dict[str, Any], None]:
        chunk = torch.zeros(1, module.chunk_samples)
        past, lengths = torch.zeros(1, module.past_size), torch.tensor([module.chunk_samples])
        return {"samples": chunk, "lengths": lengths, "past": past,
                "state": module.init_state(1)}, None  # fmt: skip

    path, file = tmp_path_factory.mktemp("export") / "model.onnx", load_model(MODEL)
    exported = Exported("model", file.config.context.live)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx, "chunk_inputs", inputs)
        onnx.write(eager_step(file, exported), path, exported, file)
    return path


@pytest.fixture(scope="module")
def of_the_command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export as a user makes it."""
    need_onnx()
    path = tmp_path_factory.mktemp("export") / "model.onnx"
    arguments = ("--model", MODEL, "--format", "onnx", "--what", "model", "--output", path)
    assert run("export", *arguments) == 0
    return path


def found(*command: object) -> str:
    """What a command prints, or nothing."""
    try:
        return subprocess.run(
            [str(part) for part in command], cwd=PROJECT, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def program(kind: str, folder: Path, change: tuple[str, str] = ("", "")) -> list[str]:
    """The command that runs an example, of which a part was exchanged."""
    source = (PROJECT / "docs" / "examples" / f"stream_onnx.{kind}").read_text(encoding="utf-8")
    assert not change[0] or source.count(change[0]) == 1
    path = folder / f"stream_onnx.{kind}"
    path.write_text(source.replace(*change), encoding="utf-8")
    if kind == "py":
        return [sys.executable, str(path)]
    if kind == "mjs":
        package = found("node", "-p", "require.resolve('onnxruntime-node/package.json')")
        if not package:
            pytest.skip("needs Node and onnxruntime-node, in NODE_PATH if need be")
        (folder / "node_modules").symlink_to(Path(package).parents[1])
        return ["node", str(path)]
    flags = found("pkg-config", "--cflags", "--libs", "libonnxruntime")
    if not flags or not shutil.which("g++"):
        pytest.skip("needs g++ and ONNX Runtime for C++, known to pkg-config as libonnxruntime")
    compiler = ["g++", "-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", path.name]
    subprocess.run([*compiler, "-o", "stream_onnx", *flags.split()], cwd=folder, check=True)
    return [str(folder / "stream_onnx")]


def printed(command: list[str], *arguments: Path) -> list[str]:
    """The different texts that a program prints one after another; its errors, if it fails."""
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    shown = re.split(r"[\r\n]+", done.stdout.strip("\n"))
    return [text for before, text in zip(["", *shown], shown, strict=False) if text != before]


def check(kind: str, model: Path, spoken: Spoken, folder: Path) -> None:
    """A program's texts are asrkit's, and grow; without the state they are others."""
    command = program(kind, folder)
    for wav, text in spoken.items():
        shown = printed(command, model, wav)
        assert shown[-1] == text
        assert len(shown) > 2
        assert all(text.startswith(part) for part in shown)
    (folder / "control").mkdir()
    forgetful = program(kind, folder / "control", FORGETS[kind])
    assert {wav: printed(forgetful, model, wav)[-1] for wav in spoken} != spoken


def test_python(of_one_stream: Path, spoken: Spoken, tmp_path: Path) -> None:
    check("py", of_one_stream, spoken, tmp_path)


FORMS = {  # wav files that the programs would read as other samples
    "rate": {"samplerate": 8000}, "stereo": {"channels": 2}, "24 bits": {"subtype": "PCM_24"},
    "float": {"subtype": "FLOAT"}, "8 bits": {"subtype": "PCM_U8"}, "mu-law": {"subtype": "ULAW"},
    "flac": {"format": "FLAC"},
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_python_refuses_other_wav_files_with_one_line(form: str, tmp_path: Path) -> None:
    need_onnx()
    options: dict[str, Any] = {"samplerate": 16000, "channels": 1, "format": "WAV"} | FORMS[form]
    path, command = tmp_path / "a.wav", program("py", tmp_path)
    soundfile.write(path, np.zeros((1600, options.pop("channels"))), **options)
    done = subprocess.run([*command, "no.onnx", path], capture_output=True, encoding="utf-8")
    assert done.returncode != 0
    assert done.stdout == ""
    told = f"{path}: .*(must have 16000 Hz, 1 channel, 16 bits|cannot be read as wav).*\n"
    assert re.fullmatch(told, done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORGETS)
def test_a_program(kind: str, of_the_command: Path, spoken: Spoken, tmp_path: Path) -> None:
    check(kind, of_the_command, spoken, tmp_path)


def test_the_page_names_all_that_the_file_has(of_one_stream: Path) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(of_one_stream)
    about, file = session.get_modelmeta().custom_metadata_map, load_model(MODEL)
    shapes = {each.name: each.shape for each in session.get_inputs()}
    assert about["sample_rate"] == str(audio.SAMPLE_RATE)
    assert shapes["samples"] == [1, int(about["chunk_length"])]
    assert shapes["past"] == [1, 240 + int(about["samples_ahead"])]
    assert about["samples_ahead"] == "2560"
    symbols = [file.tokenizer.piece(i) for i in range(1, file.tokenizer.vocab_size)]
    assert about["symbols"].split("\n") == symbols
    page = (PROJECT / "docs" / "export.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", page))
    outputs = {each.name for each in session.get_outputs()}
    carried = {f"new_{name}" for name in shapes}
    assert {*about, *json.loads(about["asrkit"]), *shapes, *(outputs - carried)} <= named


@pytest.mark.parametrize("label", ["<eou>", "<EOU>", "<control>"])
def test_the_end_of_a_turn_is_not_text(
    label: str, of_one_stream: Path, spoken: Spoken, tmp_path: Path
) -> None:
    import onnx as onnx_package

    model, (wav, text) = onnx_package.load(of_one_stream), next(iter(spoken.items()))
    (symbols,) = (each for each in model.metadata_props if each.key == "symbols")
    word = f" {text.split()[1]}"
    assert word in symbols.value.split("\n")
    symbols.value = "\n".join(label if each == word else each for each in symbols.value.split("\n"))
    onnx_package.save(model, tmp_path / "model.onnx")
    shown = printed(program("py", tmp_path), tmp_path / "model.onnx", wav)[-1]
    assert word not in f" {shown}"
    assert (label in shown) == (label == "<control>")


def test_a_stream_with_ends_of_its_own_is_refused(of_one_stream: Path, tmp_path: Path) -> None:
    import onnx as onnx_package

    model = onnx_package.load(of_one_stream)
    (ends,) = (each for each in model.metadata_props if each.key == "samples_before")
    assert ends.value == "0"
    ends.value = "120"
    onnx_package.save(model, tmp_path / "model.onnx")
    soundfile.write(tmp_path / "a.wav", np.zeros(16000), 16000)
    with pytest.raises(AssertionError, match=r"docs/export\.md"):
        printed(program("py", tmp_path), tmp_path / "model.onnx", tmp_path / "a.wav")
