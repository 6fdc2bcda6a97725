"""Check the words of docstrings, `Args` entries, help texts and errors: see docs/contributing.md.

python -m tools.prose                  every finding, then the count of each rule
python -m tools.prose asrkit/serve     those of a folder or file
"""

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parents[1]
FOLDERS = ("asrkit", "tools", "recipes", "docs/examples")
OPENINGS = {  # words that name no thing: what follows has to be read before they mean anything
    "all", "as", "how", "likewise", "of", "one", "those", "what", "where", "which", "who", "whose",
}  # fmt: skip
NO_NOUN = OPENINGS | {"at", "by", "for", "from", "if", "in", "it", "on", "to", "with"}
NO_NOUN -= {"all", "one"}  # "all frames", "one row each" name a thing
IS_NO = re.compile(r"\b(?:is|are|was|were) (?:none\b|no (?!longer\b|more\b|less\b)[a-z]+)")
LONGEST = 32  # words of a sentence


class Text(NamedTuple):
    """A text that people read, and the line at which it stands."""

    line: int
    kind: str  # docstring, args, help, error
    text: str


class Finding(NamedTuple):
    """A text that breaks a rule."""

    place: str
    rule: str
    text: str


def texts_of(source: str) -> Iterator[Text]:
    """Yield the texts of a module: docstrings, their entries of Args, help texts, errors."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if text := ast.get_docstring(node):
                line = getattr(node, "lineno", 1)
                yield Text(line, "docstring", text.partition("\n\n")[0])
                for entry in entries(text):
                    yield Text(line, "args", entry)
        elif isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg == "help" and (text := written(keyword.value)):
                    yield Text(keyword.value.lineno, "help", text)
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for text in filter(None, map(written, node.exc.args[:1])):
                yield Text(node.lineno, "error", text)


def entries(docstring: str) -> Iterator[str]:
    """Yield the descriptions in a docstring's section Args."""
    _, found, section = docstring.partition("\nArgs:\n")
    if not found:
        return
    for line in section.splitlines():
        if line and not line.startswith(" "):
            return
        if entry := re.match(r" {4}\w+(?:, \w+)*: (.*)", line):
            yield entry[1]


def written(node: ast.expr) -> str:
    """Return the text of a string or an f-string, "…" for its values; "" for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(written(part) or "…" for part in node.values)
    return ""


def broken(text: Text) -> Iterator[str]:
    """Yield the rules that a text breaks."""
    first = re.match(r"[A-Za-z]+", text.text)
    word = first[0].lower() if first else ""
    if first and word in (NO_NOUN if text.kind == "args" else OPENINGS):
        yield f"{text.kind} begins with {first[0]!r}"
    if IS_NO.search(text.text):
        yield "is no X"
    sentences = re.split(r"(?<=[.;:?!])\s+", text.text.replace("\n", " "))
    if max(len(each.split()) for each in sentences) > LONGEST:
        yield f"sentence of more than {LONGEST} words"


def findings(paths: list[Path]) -> Iterator[Finding]:
    """Yield what breaks a rule in Python files, and in all Python files of folders."""
    for path in paths:
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            for text in texts_of(file.read_text(encoding="utf-8")):
                for rule in broken(text):
                    yield Finding(f"{file.relative_to(PROJECT)}:{text.line}", rule, text.text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, help="files and folders (default: all)")
    paths = parser.parse_args().paths or [PROJECT / folder for folder in FOLDERS]
    found = list(findings([path.resolve() for path in paths]))
    for each in found:
        print(f"{each.place}: {each.rule}: {' '.join(each.text.split())[:100]}")
    for rule, count in Counter(each.rule for each in found).most_common():
        print(f"{count:6} {rule}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
