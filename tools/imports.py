"""Print who imports whom in asrkit, layer by layer: python tools/imports.py"""

import ast
import sys
from collections.abc import Container, Iterator, Mapping
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
PACKAGE = PROJECT / "asrkit"

# Import nothing of asrkit.
ROOTS = {
    "atomic_write", "errors", "extras", "hub", "lines", "pretrained",
    "registry", "terms", "version",
}  # fmt: skip
LEAVES = {"audio", "text", "model", "search", "lm"}  # import roots alone
CONTENTS = LEAVES | {"config", "build", "model_contents"}
UP_TO_MODEL_FILE = CONTENTS | {"interop", "model_file"}
UP_TO_RUNTIME = UP_TO_MODEL_FILE | {"backends"}
UP_TO_EVALUATION = UP_TO_RUNTIME | {"data", "runtime", "evaluation"}
LIBRARIES = {"training", "transcription", "export", "report", "serve"}
MAY_IMPORT = {  # from the bottom to the top
    **{leaf: set() for leaf in sorted(LEAVES)},
    "data": LEAVES,
    "config": {"audio", "model", "search"},  # whose kinds have options
    "build": LEAVES | {"config"},
    "model_contents": LEAVES | {"config"},
    "interop": CONTENTS,
    "model_file": CONTENTS | {"interop"},
    "backends": UP_TO_RUNTIME,
    "runtime": UP_TO_RUNTIME,
    "evaluation": UP_TO_RUNTIME | {"data", "runtime"},
    "export": UP_TO_EVALUATION,
    "training": UP_TO_EVALUATION,
    "transcription": UP_TO_EVALUATION,
    "report": UP_TO_EVALUATION | {"training"},
    "serve": {"audio", "search", "runtime"},
    "cli": UP_TO_RUNTIME | {"data", "runtime"},  # no library imports it
    "commands": UP_TO_EVALUATION | LIBRARIES | {"cli", "asrkit"},
    "entry": {"cli", "commands"},  # `python -m asrkit.train`, and the command `asrkit`
    "asrkit": {"model", "runtime"},  # the package's own names, imported when they are used
}


def layer_of(path: Path) -> str:
    """The layer of a file: its folder or its own name, "entry" for what is only run."""
    relative = path.relative_to(PACKAGE)
    if relative.name == "__main__.py":
        return "entry"
    if len(relative.parts) > 1:
        return relative.parts[0]
    if relative.stem == "__init__":
        return "asrkit"
    return relative.stem if relative.stem in MAY_IMPORT.keys() | ROOTS else "entry"


def imported(source: str) -> set[str]:
    """The layers that a file imports, anywhere in it."""
    parts = (name.split(".") for name in names_in(source))
    return {([*rest, "asrkit"])[0] for package, *rest in parts if package == "asrkit"}


def names_in(source: str) -> Iterator[str]:
    """The dotted names that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def upward(path: Path, source: str) -> set[str]:
    """The layers that this file must not import, but does."""
    layer = layer_of(path)
    return imported(source) - MAY_IMPORT.get(layer, set()) - ROOTS - {layer}


def circles(sources: Mapping[str, str]) -> list[list[str]]:
    """The groups of modules that import each other, anywhere in them.

    Args:
        sources: modules of asrkit by their dotted names.
    """
    graph = {name: modules_in(source, sources) - {name} for name, source in sources.items()}
    reached: dict[str, set[str]] = {}
    for name in graph:
        found, waiting = set[str](), [*graph[name]]
        while waiting:
            if (module := waiting.pop()) not in found:
                found.add(module)
                waiting += graph[module]
        reached[name] = found
    groups = {
        tuple(sorted(each for each in reached[name] if name in reached[each])) for name in graph
    }
    return sorted([*group] for group in groups if group)


def modules_in(source: str, known: Container[str]) -> set[str]:
    """The modules that a file imports: the file of a name, not the package around it."""
    found = set()
    for name in names_in(source):
        while name not in known and "." in name:
            name = name.rpartition(".")[0]
        if name in known:
            found.add(name)
    return found


def sources() -> dict[str, str]:
    """The text of each module of asrkit, by its dotted name."""
    return {
        ".".join(path.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__"):
        path.read_text(encoding="utf-8")
        for path in sorted(PACKAGE.rglob("*.py"))
    }  # fmt: skip


def picture() -> list[str]:
    """A line for each layer, from the top to the bottom: its lines, and what it imports."""
    lines: dict[str, int] = {}
    arrows: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        layer, source = layer_of(path), path.read_text(encoding="utf-8")
        lines[layer] = lines.get(layer, 0) + len(source.splitlines())
        arrows[layer] = arrows.get(layer, set()) | imported(source)
    shown = []
    for layer in [*reversed(MAY_IMPORT), *sorted(ROOTS)]:
        below = sorted(arrows[layer] - ROOTS - {layer}, key=[*MAY_IMPORT].index)
        shown.append(f"{layer:<12}{lines[layer]:>6}  {' '.join(reversed(below))}".rstrip())
    return [*shown, f"{'':<12}{sum(lines.values()):>6}"]


def main() -> int:
    print(f"{'':<13}lines  imports")
    print("\n".join(picture()))
    wrong = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        for layer in sorted(upward(path, path.read_text(encoding="utf-8"))):
            print(f"up: {path.relative_to(PROJECT)} imports {layer}")
            wrong += 1
    print(f"{wrong} imports point up" if wrong else "all imports point down")
    found = circles(sources())
    for modules in found:
        print(f"circle: {' '.join(modules)}")
    print(f"{len(found)} circles" if found else "no circles")
    return 1 if wrong or found else 0


if __name__ == "__main__":
    sys.exit(main())
