"""Paths of conf/ and recipes/: inside an installed package, beside it in a checkout."""

from pathlib import Path

PACKAGE = Path(__file__).parent.parent


def folder_of(name: str) -> Path:
    """Return the folder "conf" or "recipes" of this asrkit."""
    inside = PACKAGE / name
    return inside if inside.is_dir() else PACKAGE.parent / name


def configurations() -> dict[str, Path]:
    """Return the files of conf/ by name."""
    return {path.stem: path for path in sorted(folder_of("conf").glob("*.yaml"))}


def recipes() -> dict[str, Path]:
    """Return the scripts that prepare a corpus, by the corpus' name."""
    return {path.parent.name: path for path in sorted(folder_of("recipes").glob("*/prepare.py"))}
