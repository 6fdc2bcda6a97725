"""Docstrings, entries of Args, help texts and errors keep the rules of tools/prose.py."""

import pytest

from tests.conftest import PROJECT
from tools.prose import FOLDERS, LONGEST_ON_PAGE, broken, findings, sentences_of, texts_of

BROKEN = '''
"""What a module holds."""

class Reader:
    """Read a file.

    Args:
        path: of the file.
        rate: sample rate in Hz, or None.
    """

    def read(self):
        """Of the file, its samples.

            x = y

        where x is a sample. By default it is mono. What it has is no copy:

        mono      how a table says it

        Raises:
            ValueError: by a wrong file.
        """
        raise ValueError(f"{self.path} is no file")

parser.add_argument("--rate", help="of the samples")
parser.add_argument("--size", help="default 3")
logger.warning("there is no sample")
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
        ("explanation", "explanation begins with 'What'"),
        ("explanation", "is no X"),
        ("help", "help begins with 'default'"),
        ("help", "help begins with 'of'"),
        ("log", "is no X"),
    ]


LONG = "a " * LONGEST_ON_PAGE + "word"
PAGE = f"""# What a heading says

Of a stream, its text. By default
it is live. What follows is not (where a remark
may be long: {LONG}).

1. A first item: see here; and there.
2. [What was tried](a.md) is a name, `of` is code. {LONG}.

<!-- how a comment is written -->
| how a table is written |
|---|

```text
What a block holds: is no text; of no page.
```

There is no more: it is none.
"""


def test_control_each_rule_of_pages_is_found() -> None:
    found = [(text.line, rule) for text in sentences_of(PAGE) for rule in broken(text)]
    long = f"sentence of more than {LONGEST_ON_PAGE} words"
    assert sorted(found) == [
        (3, "sentence begins with 'Of'"),
        (3, "sentence begins with 'What'"),
        (3, long),
        (7, "more than one colon or semicolon"),
        (8, long),
        (18, "is no X"),
    ]
