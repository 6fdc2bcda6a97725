"""asrkit's distribution, and the extras that contain packages which only parts of it need.

The name asrkit on the package index is another project's.
"""

from collections.abc import Collection
from importlib.util import find_spec

from asrkit.errors import UserError

DISTRIBUTION = "asrkit-streaming"  # imported as asrkit, run as asrkit
PACKAGES = {  # import names of the packages of each extra
    "hub": ("huggingface_hub",),
    "mic": ("sounddevice",),
    "serve": (
        "starlette", "anyio", "uvicorn", "websockets", "python_multipart", "prometheus_client",
        "redis", "wyoming",
    ),
    "train": (
        "array_api_compat", "espeakng_loader", "jinja2", "lhotse", "num2words", "onnx",
        "onnxscript", "pyarrow", "soxr", "tensorboard", "torch", "torchaudio", "urllib3", "webvtt",
        "whisper_normalizer",
    ),
}  # fmt: skip
REQUIRED = {  # import names of the packages that every installation has
    "av", "jiwer", "numpy", "onnxruntime", "pydantic", "regex", "safetensors",
    "sentencepiece", "soundfile", "tqdm", "yaml",
}  # fmt: skip
OTHERS = {  # arguments of pip for packages without an extra, where they are not the import name
    "sherpa_onnx": "sherpa-onnx",
    "silero_vad": "--no-deps silero-vad",  # it requires torch, which its ONNX file does not need
}
EXTRA_OF = {package: extra for extra, packages in PACKAGES.items() for package in packages}


def need(*packages: str) -> None:
    """Raise UserError for packages that are not installed."""
    if absent := [package for package in packages if find_spec(package) is None]:
        raise UserError(missing(absent))


def missing(packages: Collection[str]) -> str:
    """Return the message about packages that are not installed."""
    return f"{' and '.join(packages)} not installed: {pip_install(*packages)}"


def pip_install(*packages: str) -> str:
    """Return the command that installs these packages."""
    extras = ",".join(sorted({EXTRA_OF[each] for each in packages if each in EXTRA_OF}))
    arguments = [f"'{DISTRIBUTION}[{extras}]'"] if extras else []
    others = [each for each in packages if each not in EXTRA_OF.keys() | REQUIRED]
    arguments += [OTHERS.get(each, each) for each in others]
    return f"pip install {' '.join(arguments) or DISTRIBUTION}"
