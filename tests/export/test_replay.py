"""How far an export may be from eager."""

import copy
from pathlib import Path

import array_api_compat.torch
import numpy as np
import pytest
import torch

from asrkit.backends.check import TOLERANCE
from asrkit.backends.export_metadata import Exported
from asrkit.export.__main__ import main as export
from asrkit.export.verification import eager_step, largest_difference, tolerance
from asrkit.model import Context
from asrkit.model_file import ModelFile, load_model
from tests.conftest import speech

WHOLE = Exported("model", Context(16, 64))


@pytest.fixture(scope="module")
def file() -> ModelFile:
    return load_model("small-en-alnum")


@pytest.fixture(scope="module")
def quiet_above() -> np.ndarray:
    """(1, N): speech with hardly anything above 4 kHz, as many a recording has it."""
    spectrum = np.fft.rfft(speech(3.0))
    spectrum[len(spectrum) // 2 :] *= 1e-5
    return np.fft.irfft(spectrum).astype(np.float32)[None]


def by_products(x: torch.Tensor, n: int, axis: int, norm: str) -> torch.Tensor:
    """The discrete Fourier transform as another program computes it, in float32 too."""
    assert norm == "forward"
    angles = torch.arange(n)[:, None].double() * torch.arange(n // 2 + 1) * (-2 * torch.pi / n)
    return torch.complex(x @ angles.cos().float(), x @ angles.sin().float()) / n


@pytest.mark.parametrize("is_changed", [False, True])
def test_quiet_bands_have_few_digits_in_any_program(
    is_changed: bool, file: ModelFile, quiet_above: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a Fourier transform of its own; other weights, the control, are more than rounding."""
    other = copy.deepcopy(file.model)
    with torch.no_grad():
        other.head.bias[7] += 0.1 * is_changed
    bound = tolerance(file, WHOLE, quiet_above)
    module = eager_step(file._replace(model=other), WHOLE)
    frames = module.frontend.frames

    def fbank(samples: torch.Tensor) -> torch.Tensor:
        with monkeypatch.context() as patch:
            patch.setattr(array_api_compat.torch.fft, "rfft", by_products)
            return frames(samples)

    monkeypatch.setattr(module.frontend, "frames", fbank)
    found = largest_difference(file, WHOLE, module, quiet_above)
    assert min(found, bound) > TOLERANCE
    assert bound < 0.1
    assert (found > bound) == is_changed


def test_from_features_the_bound_is_as_ever(file: ModelFile, quiet_above: np.ndarray) -> None:
    assert tolerance(file, Exported("ctc", Context(16, 64)), quiet_above) == TOLERANCE


@pytest.mark.parametrize(
    ("form", "other"),
    [("onnx-int8", "onnx-int8"), ("sherpa-onnx", "sherpa-onnx-int8")],
)
def test_a_model_that_one_file_cannot_hold_is_refused(
    form: str,
    other: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("asrkit.export.onnx.MOST_BYTES", 100_000)
    output = tmp_path / "out.onnx"
    arguments = ["--model", "small-en-alnum", "--format", form, "--output", str(output)]
    assert export(arguments) == 2
    told = "at most 0.0 GB of weights, this model needs 0.0 GB: use --format onnx, or"
    assert f"{told} {other}\n" in capsys.readouterr().err
    assert not output.exists()
