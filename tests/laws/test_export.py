"""Law 4: an exported file equals eager over a whole stream."""

import math
from pathlib import Path

import pytest
import torch

from asrkit.backends.check import difference
from asrkit.backends.export_metadata import Exported
from asrkit.config import parse_config
from asrkit.export import torchscript
from asrkit.export.verification import eager_step, largest_difference
from asrkit.model import Context
from asrkit.model.positions import KINDS
from asrkit.model_file import ModelFile
from asrkit.text import CharTokenizer
from tests.conftest import PADDED, speech, tiny_model


def file_of(
    kind: str = "relative",
    subsampling: object = "conv4",
    num_layers: int = 2,
    frontend: str = "kaldi",
    head: object = "ctc",
    num_mels: int = 80,
    layer: str = "conformer",
) -> ModelFile:
    config = parse_config(
        {
            "data": {"train": "a", "dev": "b"},
            "training": {"output_dir": "c"},
            "model": {
                "num_mels": num_mels,
                "layer": layer,
                "dim": 24,
                "num_heads": 4,
                "num_layers": num_layers,
                "ffn_dim": 48,
                "kernel_size": 5,
                "dropout": 0.0,
                "position": kind,
                "subsampling": subsampling,
                "frontend": frontend,
                "head": head,
            },
        }
    )
    sizes = {"position": kind, "subsampling": subsampling, "num_layers": num_layers, "head": head}
    model = tiny_model(**sizes, num_mels=num_mels, layer=layer).float()  # type: ignore[arg-type]
    return ModelFile(model, CharTokenizer(list("abcdefghij ")), config, {})


@pytest.fixture
def file() -> ModelFile:
    return file_of()


@pytest.mark.parametrize(("chunk_size", "left_context"), [(4, 0), (16, 64)])
def test_torchscript(file: ModelFile, chunk_size: int, left_context: int, tmp_path: Path) -> None:
    exported = Exported("encoder", Context(chunk_size, left_context))
    path = tmp_path / "step.ts"
    torchscript.write(eager_step(file, exported), path, exported, file)
    module, read = torchscript.read(path)
    assert read == exported
    samples = torch.from_numpy(speech(4.0))[None]
    assert largest_difference(file, exported, module, samples) < 1e-4


@pytest.mark.parametrize(
    "kind",  # the law "TorchScript" holds each encoder; from a file, one of each sort
    [
        pytest.param(kind, marks=[] if kind in ("relative", "sinusoidal") else [pytest.mark.slow])
        for kind in KINDS
    ],
)
def test_every_position_encoding(kind: str, tmp_path: Path) -> None:
    file, exported, path = file_of(kind), Exported("encoder", Context(16, 32)), tmp_path / "step.ts"
    torchscript.write(eager_step(file, exported), path, exported, file)
    module, _ = torchscript.read(path)
    samples = torch.from_numpy(speech(2.0))[None]
    assert largest_difference(file, exported, module, samples) < 1e-4


@pytest.mark.parametrize("subsampling", ["conv4_valid", "conv6_valid", "conv8", PADDED], ids=str)
def test_other_subsamplings(subsampling: object, tmp_path: Path) -> None:
    test_torchscript(file_of(subsampling=subsampling, num_layers=1), 4, 16, tmp_path)


def test_loading_needs_only_torch(file: ModelFile, tmp_path: Path) -> None:
    import subprocess
    import sys

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
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "(3, 16, 24) [16, 16, 3] False"


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
    samples = torch.from_numpy(speech(2.0))[None]
    assert largest_difference(file, exported, module, samples) > 1e-3
