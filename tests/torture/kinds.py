"""The kinds of inputs that others may send: valid examples of each, and how asrkit reads one."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import asrkit
from asrkit.build import build_hotwords, build_normalizer
from asrkit.errors import UserError
from asrkit.interop import import_checkpoint
from asrkit.lm.hotwords import read_hotwords
from asrkit.model_file import load_model, read_header
from asrkit.runtime.load import recognizer_of
from asrkit.training.checkpoints import read_checkpoint
from tests.torture.audio import AUDIO
from tests.torture.cage import Part
from tools.nemo_checkpoint import settings, weights, write

KEPT, FIXTURES = (Path(__file__).parents[1] / name for name in ("kept", "fixtures"))


def copies(*names: str, root: Path = KEPT) -> Callable[[Path], None]:
    """Return a function that copies kept files into a folder."""

    def seeds(folder: Path) -> None:
        for name in names:
            for path in sorted(root.glob(name)):
                (shutil.copytree if path.is_dir() else shutil.copyfile)(path, folder / path.name)

    return seeds


@cache
def noise() -> np.ndarray:
    """Return half a second of noise."""
    return (0.1 * np.random.default_rng(0).standard_normal(8000)).astype(np.float32)


def model(path: Path, said: list[str]) -> str:
    with suppress(UserError):  # the next reader may accept it
        read_header(path)
    recognizer_of(load_model(path)).transcribe(noise(), 16000)
    return ""


def checkpoint(path: Path, said: list[str]) -> str:
    read_checkpoint(path)
    return ""


@cache
def small() -> Any:
    return load_model("small-en-alnum")


def hotword_seeds(folder: Path) -> None:
    (folder / "a.txt").write_text("seven three\n# note\none\t3.5\nalpha bravo\t-1\n")
    (folder / "b.txt").write_text("".join(f"{a} {b}\n" for a in "abcdef" for b in "ghijk"))


def hotwords(path: Path, said: list[str]) -> str:
    file = small()
    found = build_hotwords(read_hotwords(path), file.tokenizer, build_normalizer(file.config.text))
    state, total = found.start(), 0.0
    for token in file.tokenizer.encode("seven three one"):
        state, score = found.step(state, token)
        total += score
    return "" if np.isfinite(total + found.finish(state)) else "a score is not finite"


def foreign_seeds(folder: Path) -> None:
    """Write a checkpoint of NeMo, and copy folders of WeNet."""
    copies("wenet")(folder)
    copies("wenet-u2pp-ctc", root=FIXTURES)(folder)
    write(folder / "tiny.nemo", settings(1, 16, 8, 12), weights(1, 16, 8, 12, False))


def foreign(path: Path, said: list[str]) -> str:
    kind = "nemo" if path.suffix == ".nemo" else "wenet"
    recognizer_of(import_checkpoint(kind, path).file).transcribe(noise(), 16000)
    return ""


def export(path: Path, said: list[str]) -> str:
    loaded = asrkit.load(
        KEPT / "models" / "exported.safetensors", backend=path,
        chunk_size="full" if "full" in path.name else 4, left_context=8, right_context=0,
    )  # fmt: skip
    loaded.transcribe(noise(), 16000)
    return ""


PARTS = {
    "audio": AUDIO,
    "models": Part(copies("models/*.safetensors"), model),
    "checkpoints": Part(copies("out/checkpoints/*.pt"), checkpoint),
    "hotwords": Part(hotword_seeds, hotwords),
    "foreign": Part(foreign_seeds, foreign, 2048),
    "exports": Part(copies("models/*.onnx"), export),
}
