"""Ready models: the .safetensors files of this folder, each with a card of its name beside it."""

from pathlib import Path

FOLDER = Path(__file__).parent


def ready_models() -> dict[str, Path]:
    """The files by the names that stand for them."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.safetensors"))}
