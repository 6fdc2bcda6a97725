"""Numbers of kept files: a former version computed them, and the test does with this one.

Names of asrkit that a refactoring may move are used here alone, so that only this file follows it.
"""

import contextlib
import hashlib
import math
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch

import asrkit
from asrkit.__main__ import main
from asrkit.interop import import_checkpoint
from asrkit.model_file import load_model, save_model

FOLDER = Path(__file__).parent
CHUNK, LEFT, RIGHT = 4, 8, 2  # encoder frames
FULL = 1 << 30
TOKENS = torch.tensor([[1, 2, 2, 3], [4, 1, 0, 0]])
Arrays = dict[str, np.ndarray]


def machine() -> dict[str, str]:
    """What decides on the last bits of a product of matrices."""
    processor = platform.processor()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = ("vendor_id", "cpu family", "model", "model name", "flags")
        found = [next((each for each in lines if each.startswith(name)), "") for name in names]
        processor = hashlib.sha256("\n".join(found).encode()).hexdigest()
    capability = torch.backends.cpu.get_cpu_capability()
    return {"torch": torch.__version__, "capability": capability, "processor": processor}


def speech(name: str) -> np.ndarray:
    """(n,) float32 of a kept recording at 16 kHz."""
    samples, _ = soundfile.read(FOLDER / "speech" / f"{name}.flac", dtype="float32")
    return samples


def network(path: Path) -> torch.nn.Module:
    """The network of a model file, its weights at the places in memory that torch chooses.

    A product's last bits depend on whether a vector of 64 bytes begins there. fff8d1f left weights
    in the mapped file, at any place.
    """
    model = load_model(path).model
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.clone()
    return model


def rows(encoded: torch.Tensor, lengths: torch.Tensor) -> np.ndarray:
    """The valid frames of all rows, one after the other."""
    found = [row[:n] for row, n in zip(encoded, lengths.tolist(), strict=True)]
    return torch.cat(found).detach().numpy()


@torch.no_grad()
def outputs(path: Path, feats: torch.Tensor, lengths: torch.Tensor) -> Arrays:
    """Encoder outputs and log-probabilities of two rows in several contexts, and of a stream."""
    model, feats = network(path), feats.clone()
    encoder, found = model.encoder, {}
    for name, chunk_size, left, right in (
        ("full", FULL, 0, 0), ("chunks", CHUNK, LEFT, 0), ("ahead", CHUNK, LEFT, RIGHT),
    ):  # fmt: skip
        state = encoder.init_state(2, left)
        encoded, frames, _ = encoder(feats, lengths, state, chunk_size, right)
        found[name] = rows(encoded, frames)
    encoded, frames, _ = encoder(feats, lengths, encoder.init_state(2, 0), FULL)
    found["log_probs"] = rows(model.head.emissions(encoded), frames)
    size, state, parts = encoder.rate.factor * CHUNK, encoder.init_state(1, LEFT), []
    for start in range(0, feats.size(1) - encoder.rate.lookahead, size):
        part = feats[:1, start : start + size + encoder.rate.lookahead]
        encoded, _, state = encoder(part, torch.tensor([part.size(1)]), state, CHUNK)
        parts.append(encoded[0])
    found["stream"] = torch.cat(parts).numpy()
    return found


def losses(path: Path, feats: torch.Tensor, lengths: torch.Tensor) -> Arrays:
    """CTC losses of two utterances and their gradients.

    The last layer's alone, with an intermediate layer's, and of two views that are to agree.
    """
    from asrkit.model import Context
    from asrkit.training.loss import Loss, View

    found = {}
    for name, layers, views in (
        ("ctc", [], [(FULL, 0, 0)]),
        ("intermediate", [1], [(CHUNK, LEFT, RIGHT)]),
        ("consistency", [1], [(FULL, 0, 0), (CHUNK, LEFT, 0)]),
    ):
        model = network(path).requires_grad_()
        inputs = feats.clone().requires_grad_()
        seen = [View(inputs, Context(*view)) for view in views]
        loss = Loss(model, layers, 0.3)(seen, lengths, TOKENS, torch.tensor([4, 2]), 0.2)
        loss.sum().backward()
        assert inputs.grad is not None
        grads = [p.grad.double() for p in model.parameters() if p.grad is not None]
        norm = math.sqrt(math.fsum(grad.square().sum().item() for grad in grads))
        found[name] = np.float64([*loss.tolist(), norm])
        found[f"{name}_gradient"] = inputs.grad.sum(dim=2).numpy()
    return found


def texts(model: str | Path, samples: np.ndarray, **options: Any) -> list[Any]:
    """A text, and its words with their times."""
    result = asrkit.load(model, **options).transcribe(samples)
    return [result.text, [[word.text, word.start, word.end] for word in result.words]]


def log_probs(model: str | Path, samples: np.ndarray, **options: Any) -> np.ndarray:
    """(E, V) of a recording."""
    return asrkit.load(model, backend="eager", **options).emissions([samples])[0]


def recognizer(model: Path) -> asrkit.Recognizer:
    """The recogniser of the saved stream."""
    return asrkit.load(model, search="prefix_beam", endpointer=asrkit.Endpointer(300))


def shipped(samples: Mapping[str, np.ndarray]) -> dict[str, list[Any]]:
    """Results of the shipped model: in full context and at 640 ms, with both searches."""
    return {
        f"{name}/{chunk_size}/{search}": texts(
            "small-en-alnum", each, chunk_size=chunk_size, search=search, right_context=0
        )
        for name, each in samples.items()
        for chunk_size in ("full", 16)
        for search in ("greedy", "prefix_beam")
    }


def resumed(config: Path) -> Path:
    """The model of a training that goes on from its checkpoint, in the current directory."""
    assert main(["train", "--config", str(config), "--resume", "training.export=false"]) == 0
    return Path("out") / "model.safetensors"


def corpus(path: Path) -> dict[str, Any]:
    """The utterances of shards, read with their index."""
    from asrkit.data.recordings import load_recordings

    return {
        each.id: [each.duration, each.text, digest(each.read()[0])]
        for each in load_recordings(str(path), [])
    }


def digest(samples: np.ndarray) -> str:
    """SHA-256 of samples as 16 bits."""
    return hashlib.sha256((samples * 32768).astype("<i2").tobytes()).hexdigest()


def imported(folder: Path, output: Path, samples: np.ndarray) -> Arrays:
    """Log-probabilities of a model of WeNet's."""
    save_model(output, import_checkpoint("wenet", folder).file)
    return {
        "full": log_probs(output, samples, chunk_size="full"),
        "chunks": log_probs(output, samples, chunk_size=CHUNK, left_context=LEFT),
    }
