"""Law 4: an exported file equals eager over a whole stream."""

import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from asrkit.backends.check import difference
from asrkit.backends.export_metadata import Exported
from asrkit.config.schema import parse_config
from asrkit.export import torchscript
from asrkit.export.__main__ import main as export
from asrkit.export.verification import eager_step, largest_difference
from asrkit.model import Context
from asrkit.model_file import ModelFile, save_model
from tests.conftest import PADDED, skip, speech, tiny_model, write_wav
from tests.laws.test_streaming import LETTERS
from tests.running import python


def file_of(kind: str = "relative", frontend: str = "kaldi", **changes: Any) -> ModelFile:
    """A small model of 80 mels by default; changes of the encoder and its head."""
    sizes = {"num_mels": 80, "num_layers": 2, "position": kind, "subsampling": "conv4"} | changes
    model = {"dim": 24, "num_heads": 4, "ffn_dim": 48, "kernel_size": 5, "dropout": 0.0}
    config = parse_config({
        "data": {"train": "a", "dev": "b"}, "training": {"output_dir": "c"},
        "model": model | sizes | {"frontend": frontend},
    })  # fmt: skip
    return ModelFile(tiny_model(**sizes).float(), LETTERS, config, {})  # type: ignore[arg-type]


def exported_model(folder: Path, file: ModelFile, *options: str) -> Path:
    """A model file, a.wav, and the export to ONNX that the command writes beside them."""
    need_onnx()
    model, wav = folder / "model.safetensors", write_wav(folder / "a.wav", speech(3.0))
    save_model(model, file)
    assert export(["--model", str(model), "--format", "onnx", "--audio", str(wav), *options]) == 0
    return model


def need_onnx() -> None:
    missing = [name for name in ("onnx", "onnxruntime", "onnxscript") if find_spec(name) is None]
    if missing:
        skip(f"needs {', '.join(missing)}")


@pytest.fixture
def file() -> ModelFile:
    return file_of()


@pytest.mark.parametrize(
    ("changes", "context"),  # the law "TorchScript" holds each encoder; a file, one of each sort
    [({}, Context(4, 0)), ({}, Context(16, 64)), ({}, Context(4, 16, 3)),
     ({"kind": "sinusoidal"}, Context(16, 32)), ({"kind": "sinusoidal"}, Context(4, 16, 3)),
     *(({"subsampling": kind, "num_layers": 1}, Context(4, 16))
       for kind in ("conv4_valid", "conv6_valid", "conv8", PADDED))],
)  # fmt: skip
def test_torchscript(changes: dict[str, Any], context: Context, tmp_path: Path) -> None:
    file, exported, path = file_of(**changes), Exported("encoder", context), tmp_path / "step.ts"
    torchscript.write(eager_step(file, exported), path, exported, file)
    module, read = torchscript.read(path)
    assert read == exported
    samples = speech(4.0)[None]
    assert largest_difference(file, exported, module, samples) < 1e-4


def test_loading_needs_only_torch(file: ModelFile, tmp_path: Path) -> None:
    exported = Exported("encoder", Context(16, 32))
    torchscript.write(eager_step(file, exported), tmp_path / "encoder.ts", exported, file)
    program = (
        "import sys, torch\n"
        "encoder = torch.jit.load('encoder.ts')\n"
        "state = encoder.init_state(3)\n"
        "feats, lengths = torch.zeros(3, 64, 80), torch.tensor([64, 64, 9])\n"
        "for _ in range(2):\n"
        "    encoded, frames, state = encoder(feats, lengths, state)\n"
        "print(tuple(encoded.shape), frames.tolist(), 'asrkit' in sys.modules)\n"
    )
    done = python(program, cwd=tmp_path)
    assert done.stdout.strip() == "(3, 16, 24) [16, 16, 3] False", done.stderr


def test_a_number_that_is_not_finite_is_a_difference() -> None:
    one = torch.ones(3)
    assert difference(one, one) == 0.0
    assert difference(one, one * math.nan) == math.inf
    assert difference(one, torch.ones(2)) == math.inf


def test_control_other_weights_are_noticed(file: ModelFile, tmp_path: Path) -> None:
    exported = Exported("encoder", Context(16, 32))
    torchscript.write(eager_step(file, exported), tmp_path / "step.ts", exported, file)
    module, _ = torchscript.read(tmp_path / "step.ts")
    with torch.no_grad():
        file.model.encoder.layers[1].attention.position.content_bias.add_(0.5)
    samples = speech(2.0)[None]
    assert largest_difference(file, exported, module, samples) > 1e-3
