"""Packages that only parts of asrkit need, and the installation extra that contains each."""

from collections.abc import Collection
from importlib.util import find_spec

from asrkit.distribution import requirement
from asrkit.errors import UserError

PACKAGES = {  # import names of the packages of each extra
    "datasets": ("pyarrow",),
    "hub": ("huggingface_hub",),
    "kenlm": ("kenlm",),
    "mic": ("sounddevice",),
    "numbers": ("num2words",),
    "mlflow": ("mlflow",),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "ray": ("ray",),
    "recipes": ("backports", "espeakng_loader", "matplotlib", "soxr"),
    "redis": ("redis",),
    "serve": (
        "starlette",
        "anyio",
        "uvicorn",
        "websockets",
        "python_multipart",
        "prometheus_client",
    ),
    "sherpa": ("sherpa_onnx",),
    "train": ("fsspec", "jiwer", "lhotse", "rapidfuzz", "tensorboard", "torchaudio", "urllib3"),
    "trackio": ("trackio",),
    "vad": ("silero_vad",),
    "wandb": ("wandb",),
    "written": ("whisper_normalizer",),
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
    return f"pip install {requirement(*sorted({EXTRA_OF[each] for each in packages}))}"
