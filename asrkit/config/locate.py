"""Paths of conf/ and recipes/: in an installed package inside it, in a checkout beside it."""

from pathlib import Path

PACKAGE = Path(__file__).parent.parent


def folder_of(name: str) -> Path:
    """The folder "conf" or "recipes" of this asrkit."""
    inside = PACKAGE / name
    return inside if inside.is_dir() else PACKAGE.parent / name


def configurations() -> dict[str, Path]:
    """The files of conf/ by name."""
    return {path.stem: path for path in sorted(folder_of("conf").glob("*.yaml"))}


def recipes() -> dict[str, Path]:
    """The scripts that prepare a corpus, by its name."""
    return {path.parent.name: path for path in sorted(folder_of("recipes").glob("*/prepare.py"))}
