"""Docstrings, entries of Args, help texts and errors keep the rules of tools/prose.py."""

from pathlib import Path

import pytest

from tests.conftest import PROJECT
from tools.prose import FOLDERS, broken, findings, texts_of

BROKEN = '''
"""What a module holds."""

class Reader:
    """Read a file.

    Args:
        path: of the file.
        rate: sample rate in Hz, or None.
    """

    def read(self):
        """Of the file, its samples."""
        raise ValueError(f"{self.path} is no file")

parser.add_argument("--rate", help="of the samples")
'''


@pytest.mark.parametrize("folder", FOLDERS)
def test_texts_keep_the_rules(folder: str) -> None:
    assert any((PROJECT / folder).rglob("*.py"))
    assert list(findings([PROJECT / folder])) == []


def test_control_each_rule_is_found() -> None:
    found = [(text.kind, rule) for text in texts_of(BROKEN) for rule in broken(text)]
    assert sorted(found) == [
        ("args", "args begins with 'of'"),
        ("docstring", "docstring begins with 'Of'"),
        ("docstring", "docstring begins with 'What'"),
        ("error", "is no X"),
        ("help", "help begins with 'of'"),
    ]


def test_control_plain_texts_break_no_rule(tmp_path: Path) -> None:
    plain = BROKEN.replace("What a module holds", "A reader").replace('"""Of the', '"""Return the')
    plain = plain.replace("path: of the file", "path: file to read").replace("is no", "is not a")
    plain = plain.replace("of the samples", "sample rate in Hz")
    assert [rule for text in texts_of(plain) for rule in broken(text)] == []
