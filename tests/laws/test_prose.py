"""Docstrings, entries of Args, help texts and errors keep the rules of tools/prose.py."""

from pathlib import Path

import pytest

from tests.conftest import PROJECT
from tools.prose import broken, findings, texts_of

KEPT = [  # folders and files that keep the rules
    "asrkit/*.py", "asrkit/audio", "asrkit/backends", "asrkit/cli", "asrkit/commands",
    "asrkit/config", "asrkit/data", "asrkit/evaluation", "asrkit/export", "asrkit/interop",
    "asrkit/lm", "asrkit/model", "asrkit/report", "asrkit/runtime", "asrkit/search", "asrkit/text",
    "asrkit/training", "asrkit/transcription", "docs/examples", "recipes", "tools/benchmarks",
    "tools/prose.py", "tools/studies",
]  # fmt: skip

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


@pytest.mark.parametrize("path", KEPT)
def test_texts_keep_the_rules(path: str) -> None:
    paths = sorted(PROJECT.glob(path))
    assert paths
    assert list(findings(paths)) == []


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
