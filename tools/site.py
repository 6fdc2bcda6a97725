"""Pages of the site (make docs) that are not written in docs/: recipes and commands.

mkdocs calls the functions by their names; .mkdocs.yml lists this file under `hooks`.
"""

import contextlib
import io
import os
import re
import sys
from pathlib import Path
from unittest import mock

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))  # mkdocs has its own folder there
COLUMNS = 84  # of help texts
EXAMPLE = re.compile(r"^\[(docs/examples/\w+\.(\w+))\]\([^)]+\)$", re.MULTILINE)
LANGUAGES = {"py": "python", "mjs": "javascript", "cpp": "cpp"}
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)([^)#]+)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of recipes, and commands.md."""
    for path in PROJECT.glob("recipes/*/README.md"):
        name = path.relative_to(PROJECT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    files.append(File.generated(config, "commands.md", content=commands()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Write the programs in place of the links to them, which a forge shows.

    A recipe's links to files that are not pages keep only their words.
    """
    if page.file.src_uri == "examples.md":
        return EXAMPLE.sub(program, markdown)
    if not page.file.src_uri.startswith("recipes/"):
        return markdown

    def kept(link: re.Match[str]) -> str:
        target = os.path.normpath(os.path.join(os.path.dirname(page.file.src_uri), link[2]))
        return link[0] if files.get_file_from_path(target) else link[1]

    return LINK.sub(kept, markdown)


def program(link: re.Match[str]) -> str:
    path, kind = link.groups()
    return f'``` {{ .{LANGUAGES[kind]} title="{path}" }}\n--8<-- "{path}"\n```'


def commands() -> str:
    """Return the page with each command's help."""
    from asrkit.__main__ import COMMANDS

    parts = ["# Commands\n\nAll options of all commands, as `asrkit COMMAND --help` prints them.\n"]
    for command, purpose in COMMANDS.items():
        parts.append(f"\n## asrkit {command}\n\n{purpose[0].upper()}{purpose[1:]}.\n")
        parts.append(f"\n```text\n{help_of(command.split())}\n```\n")
    return "".join(parts)


def help_of(arguments: list[str]) -> str:
    """Return what a command prints for --help."""
    from asrkit.__main__ import main

    printed = io.StringIO()
    with (
        mock.patch.dict(os.environ, COLUMNS=str(COLUMNS)),
        mock.patch.object(sys, "argv", ["asrkit"]),
        contextlib.redirect_stdout(printed),
        contextlib.suppress(SystemExit),
    ):
        main([*arguments, "--help"])
    return printed.getvalue().strip()
