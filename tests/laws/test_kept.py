"""Files that fff8d1f wrote load, and give the numbers that they gave there.

`tests/kept/make.py` of commit b560c3b wrote the files, in a checkout of fff8d1f. On a machine like
the one that wrote them, with the same torch, all numbers must be equal bit for bit. Other
processors sum products in another order, so there numbers may differ by ROUNDING of the largest
one. ASRKIT_KEPT_BITS=1 requires equal bits.

Three things changed on purpose after fff8d1f and are not kept: the frames and bins that SpecAugment
masks (6c7857d); the place in memory of a model file's weights (de9f1ff), which decides on last
bits, so `measured.network` moves them; and the order in which gradients of convolutions are summed,
so gradients and trained weights are kept to ROUNDING. The tie rule of prefix beam search (8e6367c)
changes none of the kept texts and times.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import asrkit
from asrkit import audio
from asrkit.errors import UserError
from asrkit.export import torchscript
from asrkit.export.verification import largest_difference, tolerance
from asrkit.model_file import load_model
from tests.kept import measured
from tests.kept.measured import CHUNK, FOLDER, Arrays, speech
from tests.laws.test_export import need_onnx

ROUNDING = 1e-5
Batch = tuple[torch.Tensor, torch.Tensor]
RESULTS: dict[str, Any] = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))
BITS = measured.machine() == RESULTS["machine"] or "ASRKIT_KEPT_BITS" in os.environ
MODELS = sorted(path.stem for path in (FOLDER / "models").glob("*.safetensors"))
EXPORTED = FOLDER / "models" / "exported.safetensors"
CONTEXTS = {"samples_full": "full", "samples_chunks": CHUNK}


@pytest.fixture(scope="module")
def numbers() -> Arrays:
    with np.load(FOLDER / "numbers.npz", allow_pickle=False) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def batch(numbers: Arrays) -> Batch:
    """Features (2, T, F) and their lengths."""
    return torch.from_numpy(numbers["feats"]), torch.from_numpy(numbers["lengths"])


def model(name: str) -> Path:
    return FOLDER / "models" / f"{name}.safetensors"


def same(found: Arrays, numbers: Arrays, of: str, exact: bool = BITS) -> list[str]:
    """Names of arrays that are not those that were kept."""
    names = [each.removeprefix(f"{of}/") for each in numbers if each.startswith(f"{of}/")]
    own = [each for each in names if each in found]
    assert len(own) == len(found) > 0, "an array is not kept"
    return [each for each in own if not equal(found[each], numbers[f"{of}/{each}"], exact)]


def equal(found: np.ndarray, kept: np.ndarray, exact: bool) -> bool:
    """Whether numbers are the same, to the last bit or to ROUNDING."""
    if found.shape != kept.shape or found.dtype != kept.dtype:
        return False
    if exact:
        return np.array_equal(found, kept)
    return float(np.abs(found - kept).max()) <= ROUNDING * max(1.0, float(np.abs(kept).max()))


@pytest.mark.parametrize("name", MODELS)
def test_model_file_gives_kept_outputs(name: str, numbers: Arrays, batch: Batch) -> None:
    """In full context, in chunks, with frames ahead and streamed; and from samples."""
    found = measured.outputs(model(name), *batch)
    for key, chunk_size in CONTEXTS.items():
        found[key] = measured.log_probs(model(name), speech("call"), chunk_size=chunk_size)
    assert same(found, numbers, name) == []


@pytest.mark.parametrize("name", MODELS)
def test_losses_and_gradients_are_kept(name: str, numbers: Arrays, batch: Batch) -> None:
    """CTC, an intermediate layer's, two views. Not of models with `after_norm`, whose intermediate
    layer does not go through it."""
    if f"{name}/loss/ctc" not in numbers:
        assert asrkit.load(model(name)) is not None
        return
    assert same(measured.losses(model(name), *batch), numbers, f"{name}/loss", False) == []


def test_control_changed_weight_is_noticed(
    numbers: Arrays, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change in the sixth digit of one weight changes each of the arrays."""
    name, load_model = "position-relative", measured.load_model

    def changed(path: Path) -> Any:
        file = load_model(path)
        with torch.no_grad():
            file.model.encoder.subsampling.out.bias[0] += 1e-4
        return file

    monkeypatch.setattr(measured, "load_model", changed)
    found = measured.outputs(model(name), *batch)
    assert same(found, numbers, name) == [*found]
    found = measured.losses(model(name), *batch)
    assert same(found, numbers, f"{name}/loss") == [*found]


def test_shipped_model_recognises_the_same_words_at_the_same_times() -> None:
    kept = RESULTS["shipped"]
    names = {each.partition("/")[0] for each in kept}
    assert measured.shipped({name: speech(name) for name in names}) == kept
    assert sum(len(text.split()) for text, _ in kept.values()) > 30


@pytest.mark.parametrize(
    ("backend", "chunk_size"),
    [("onnx", CHUNK), ("onnx-int8", CHUNK), ("onnx", "full"), ("eager", CHUNK), ("eager", "full")],
)
def test_export_loads(backend: str, chunk_size: int | str) -> None:
    """It equals eager, which loading compares, and gives the text that eager gave."""
    if backend != "eager":
        need_onnx()
    kept = RESULTS["exported_full" if chunk_size == "full" else "exported"]
    found = measured.texts(EXPORTED, speech("digits"), backend=backend, chunk_size=chunk_size)
    assert len(kept[0]) > 8
    if backend != "onnx-int8":
        assert found == kept


def test_torchscript_export_loads() -> None:
    (path,) = (FOLDER / "models").glob("exported.*.ts")
    recording = FOLDER / "speech" / "call.flac"
    module, exported = torchscript.read(path)
    file, samples = load_model(EXPORTED), audio.load(recording)[None]
    worst = largest_difference(file, exported, module, samples)
    assert worst <= tolerance(file, exported, samples, worst)


def test_training_goes_on_from_its_checkpoint(
    numbers: Arrays, batch: Batch, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """To the model that the former version made of it."""
    for name in ("audio", "out", "train.jsonl", "dev.jsonl", "config.yaml"):
        source = FOLDER / name
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    found = measured.outputs(measured.resumed(Path("config.yaml")), *batch)
    assert "resuming at epoch 1" in Path("out", "train.log").read_text(encoding="utf-8")
    assert same(found, numbers, "trained", False) == []


def test_shards_are_read() -> None:
    assert measured.corpus(FOLDER / "shards") == RESULTS["shards"]


def test_saved_stream_goes_on_or_is_refused_by_name() -> None:
    """A version may refuse streams of another one; it says so then."""
    recognizer = measured.recognizer(model("position-relative"))
    data = (FOLDER / "stream.bin").read_bytes()
    try:
        session = recognizer.restore(data)
    except UserError as error:
        assert "version" in str(error)  # noqa: PT017
        return
    session.accept(speech("digits")[20000:])
    assert session.finish().text == RESULTS["stream"]


def test_imported_model_gives_kept_outputs(numbers: Arrays, tmp_path: Path) -> None:
    """A WeNet folder of one layer with BatchNorm."""
    found = measured.imported(FOLDER / "wenet", tmp_path / "m.safetensors", speech("digits"))
    assert same(found, numbers, "wenet") == []
