"""Check the words of docstrings, `Args` entries, help texts, errors and pages.

python -m tools.prose                  every finding
python -m tools.prose asrkit/serve     those of a folder or file

docs/contributing.md has the rules.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parents[1]
FOLDERS = ("asrkit", "tools", "recipes", "docs/examples")
PAGES = ("*.md", "docs/**/*.md", "recipes/*/*.md")
OPENINGS = {  # words that name no thing: what follows has to be read before they mean anything
    "all", "as", "how", "likewise", "of", "one", "those", "what", "where", "which", "who", "whose",
}  # fmt: skip
NO_NOUN = OPENINGS | {"at", "by", "for", "from", "if", "in", "it", "on", "to", "with"}
NO_NOUN -= {"all", "one"}  # "all frames", "one row each" name a thing
IS_NO = re.compile(r"\b(?:is|are|was|were) (?:none\b|no (?!longer\b|more\b|less\b)[a-z]+)")
LONGEST = 32  # words of a sentence
LONGEST_ON_PAGE = 25
PAGE_OPENINGS = OPENINGS - {"all", "one"} | {"by"}
OPENINGS_OF = {"args": NO_NOUN, "explanation": PAGE_OPENINGS, "help": OPENINGS | {"default"}}
LOGGED = {"debug", "info", "warning", "error", "exception"}
NO_TEXT = re.compile(r"<!--.*?-->|^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
# Headings, tables, pictures, options of mkdocstrings.
NO_PROSE = re.compile(r" *(?:$|#|\||:::|!|<|--8<--|options:|\w+: (?:true|\[))")
ENTRY = re.compile(r"^ {4}\w+(?:, \w+)*: (.*)", re.MULTILINE)  # of Args
FORMULA = re.compile(r"\S  +\S| · |^\w+:\n {4}|^[ |]")  # or a table, or a section
END = re.compile(r"(?<=[.?!])\s+")  # of a sentence
ITEM = re.compile(r" *(?:[-*>]|\d+\.) +")


class Text(NamedTuple):
    """A text that people read, and the line at which it stands."""

    line: int
    kind: str  # docstring, explanation, args, help, log, error, page
    text: str


def texts_of(source: str) -> Iterator[Text]:
    """Yield the texts of a module: docstrings, entries of Args, help texts, log lines, errors."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            line = getattr(node, "lineno", 1)
            first, *rest = re.split(r"\n\n|\n(?=\w+:\n {4})", ast.get_docstring(node) or "")
            yield Text(line, "docstring", first)
            for paragraph in rest:
                if paragraph.startswith("Args:\n"):
                    yield from (Text(line, "args", entry) for entry in ENTRY.findall(paragraph))
                elif not FORMULA.search(paragraph):
                    yield from (Text(line, "explanation", each) for each in END.split(paragraph))
        elif isinstance(node, ast.Call):
            helps = [keyword.value for keyword in node.keywords if keyword.arg == "help"]
            yield from (Text(each.lineno, "help", written(each)) for each in helps)
            if isinstance(node.func, ast.Attribute) and node.func.attr in LOGGED:
                yield from (Text(node.lineno, "log", written(each)) for each in node.args[:1])
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from (Text(node.lineno, "error", written(each)) for each in node.exc.args[:1])


def sentences_of(page: str) -> Iterator[Text]:
    """Yield the sentences of a Markdown page; a remark in brackets is a sentence too."""
    for line, paragraph in paragraphs(page):
        text = re.sub(r"`[^`]*`", "`code`", paragraph)
        text = re.sub(r"\]\([^)]*\)", "]", text)  # addresses of links
        remark = re.compile(r"\([^()]*\)")
        for part in [*remark.findall(text), remark.sub("", text)]:
            yield from (Text(line, "page", sentence) for sentence in END.split(part))


def paragraphs(page: str) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs and list items of a Markdown page, each with its line."""
    text = NO_TEXT.sub(lambda found: "\n" * found[0].count("\n"), page)
    first, parts = 0, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        item, is_prose = ITEM.match(line), NO_PROSE.match(line) is None
        if parts and (item or not is_prose):
            yield first, " ".join(parts)
            parts = []
        if is_prose:
            first = first if parts else number
            parts.append(line[item.end() :] if item else line.strip())


def written(node: ast.expr) -> str:
    """Return the text of a string or an f-string, "…" for its values; "" for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(written(part) or "…" for part in node.values)
    return ""


def broken(text: Text) -> Iterator[str]:
    """Yield the rules that a text breaks."""
    if text.kind == "page":
        yield from broken_on_page(text.text)
        return
    first = re.match(r"[A-Za-z]+", text.text)
    word = first[0].lower() if first else ""
    openings = OPENINGS_OF.get(text.kind, OPENINGS)
    if text.kind == "explanation" and text.text.startswith(("By default", word)):
        openings = set()  # lower case: "where x is …" after a formula
    if first and word in openings:
        yield f"{text.kind} begins with {first[0]!r}"
    if IS_NO.search(text.text):
        yield "is no X"
    sentences = re.split(r"(?<=[.;:?!])\s+", text.text.replace("\n", " "))
    if max(len(each.split()) for each in sentences) > LONGEST:
        yield f"sentence of more than {LONGEST} words"


def broken_on_page(sentence: str) -> Iterator[str]:
    """Yield the rules that a sentence of a page breaks."""
    first = re.match(r"(?!By default)[A-Za-z]+", sentence)
    if first and first[0].lower() in PAGE_OPENINGS:
        yield f"sentence begins with {first[0]!r}"
    if IS_NO.search(sentence):
        yield "is no X"
    if sum(any(map(str.isalnum, word)) for word in sentence.split()) > LONGEST_ON_PAGE:
        yield f"sentence of more than {LONGEST_ON_PAGE} words"
    if len(re.findall(r"[:;](?=\s)", sentence)) > 1:
        yield "more than one colon or semicolon"


def findings(paths: list[Path]) -> Iterator[str]:
    """Yield a line for each broken rule in Python files, pages, and the Python of folders."""
    for path in paths:
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            texts = sentences_of if file.suffix == ".md" else texts_of
            for text in texts(file.read_text(encoding="utf-8")):
                for rule in broken(text):
                    shown = " ".join(text.text.split())[:100]
                    yield f"{file.relative_to(PROJECT)}:{text.line}: {rule}: {shown}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, help="files and folders (default: all)")
    pages = [page for pattern in PAGES for page in sorted(PROJECT.glob(pattern))]
    paths = parser.parse_args().paths or [*(PROJECT / folder for folder in FOLDERS), *pages]
    found = list(findings([path.resolve() for path in paths]))
    for each in found:
        print(each)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
