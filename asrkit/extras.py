"""asrkit's distribution, and the extras that contain packages which only parts of it need.

The name asrkit on the package index is another project's.
"""

from collections.abc import Collection
from importlib.util import find_spec

from asrkit.errors import UserError

DISTRIBUTION = "asrkit-streaming"  # imported as asrkit, run as asrkit
PACKAGES = {  # import names of the packages of each extra; of two with a package, the last is named
    "vad": ("silero_vad",),
    "hub": ("huggingface_hub",),
    "kenlm": ("kenlm",),
    "mic": ("sounddevice",),
    "numbers": ("num2words",),
    "mlflow": ("mlflow",),
    "onnx": ("onnx", "onnxscript"),
    "ray": ("ray",),
    "recipes": ("espeakng_loader", "matplotlib", "soxr"),
    "redis": ("redis",),
    "serve": (
        "starlette", "anyio", "uvicorn", "websockets", "python_multipart", "prometheus_client",
        "wyoming",
    ),
    "sherpa": ("sherpa_onnx",),
    "train": (
        "jinja2", "lhotse", "pyarrow", "tensorboard", "torchaudio", "urllib3", "webvtt",
    ),
    "wandb": ("wandb",),
    "written": ("whisper_normalizer",),
}  # fmt: skip
REQUIRED = {  # import names of the packages that every installation has
    "array_api_compat", "av", "jiwer", "numpy", "onnxruntime", "pydantic", "regex", "safetensors",
    "sentencepiece", "soundfile", "torch", "tqdm", "yaml",
}  # fmt: skip
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
    extras = ",".join(sorted({EXTRA_OF[each] for each in packages if each not in REQUIRED}))
    return f"pip install '{DISTRIBUTION}[{extras}]'" if extras else f"pip install {DISTRIBUTION}"
