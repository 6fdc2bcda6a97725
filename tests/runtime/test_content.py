"""A function's content: the same in every process, another one after every edit that matters."""

import functools
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from asrkit.runtime import postprocess
from asrkit.runtime.content import UnknownContentError, content_of

SOURCE = '''
import re
import string as names
from functools import lru_cache

import others
from others import last

TABLE = {"mr": "Mr.", "st": ["Street", {"a", "b"}]}
PATTERN = re.compile("a+")
UNUSED = 1


class Writer:
    """Writes."""

    mark = "!"

    def __init__(self, end):
        self.end = end

    def write(self, text):
        return text + self.mark + self.end


WRITER = Writer("?")


@lru_cache
def cached(word):
    return word.upper()


def helper(word):
    # a comment
    return TABLE.get(word, word)


def made(suffix):
    def inner(text, before="<"):
        return before + text + suffix

    return inner


closed = made(">")


def unrelated():
    return 7


def fix(text, *, limit=3):
    import later

    words = [helper(word) for word in text.split()][:limit]
    try:
        words = [cached(word) for word in words]
    except ValueError:
        pass
    return closed(WRITER.write(PATTERN.sub("a", later.end(others.first(last(" ".join(words)))))))
'''
OTHERS = """
def first(text):
    return text + "1"

def last(text):
    return unused(text) + "2"

def unused(text):
    return text
"""
LATER = "def end(text):\n    return text + '.'\n"


def content(folder: Path, source: str = SOURCE, others: str = OTHERS, later: str = LATER) -> str:
    """The content of `fix` in a process of its own."""
    folder.mkdir(exist_ok=True)
    for name, text in (("mine", source), ("others", others), ("later", later)):
        (folder / f"{name}.py").write_text(text)
    program = (
        "from asrkit.runtime.content import content_of; import mine; print(content_of(mine.fix))"
    )
    environment = os.environ | {"PYTHONPATH": f"{Path.cwd()}:{folder}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-B", "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def in_this_process(folder: Path, monkeypatch: pytest.MonkeyPatch, **texts: str) -> str:
    """The content of `fix` in modules that are imported anew."""
    folder.mkdir(exist_ok=True)
    for name, text in ({"mine": SOURCE, "others": OTHERS, "later": LATER} | texts).items():
        (folder / f"{name}.py").write_text(text)
        sys.modules.pop(name, None)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    import mine  # type: ignore[import-not-found]

    found = content_of(mine.fix)
    for name in ("mine", "others", "later"):
        sys.modules.pop(name, None)
    return found


EDITS = {
    "mine": [
        ('"Mr."', '"Mister"'),
        ('"Street"', '"Saint"'),
        ('{"a", "b"}', '{"a", "c"}'),
        ('compile("a+")', 'compile("a*")'),
        ('compile("a+")', 'compile("a+", re.I)'),
        ('mark = "!"', 'mark = "."'),
        ('Writer("?")', 'Writer(";")'),
        ("self.mark + self.end", "self.end + self.mark"),
        ("word.upper()", "word.lower()"),
        ("TABLE.get(word, word)", 'TABLE.get(word, "")'),
        ('before="<"', 'before="["'),
        ('made(">")', 'made("]")'),
        ("limit=3", "limit=4"),
        ("text.split()", 'text.split(" ")'),
        ("except ValueError", "except TypeError"),
    ],
    "others": [('"1"', '"3"'), ('"2"', '"3"'), ("return text\n", "return text + text\n")],
    "later": [("'.'", "'!'")],
}
NO_EDITS = [
    ("# a comment", "# another\n\n"),
    ("UNUSED = 1", "UNUSED = 2"),
    ("return 7", "return 8"),
]


def test_every_edit_of_what_a_function_uses_changes_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {"mine": SOURCE, "others": OTHERS, "later": LATER}
    found = [in_this_process(tmp_path / "0", monkeypatch)]
    for name, edits in EDITS.items():
        for old, new in edits:
            assert old in sources[name]
            edited = {name: sources[name].replace(old, new)}
            found.append(in_this_process(tmp_path / str(len(found)), monkeypatch, **edited))
    assert len({*found}) == len(found) == 20
    for old, new in NO_EDITS:  # the control
        assert old in SOURCE
        edited = {"mine": SOURCE.replace(old, new)}
        assert in_this_process(tmp_path / "same", monkeypatch, **edited) == found[0]


def test_the_content_is_the_same_in_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another hash seed, too."""
    expected = in_this_process(tmp_path / "a", monkeypatch)
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    assert content(tmp_path / "b") == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda text: text + "a", lambda text: text + "b"),
        (functools.partial(re.sub, "a", "b"), functools.partial(re.sub, "a", "c")),
        (re.compile("a").sub, re.compile("b").sub),
        (str.upper, str.lower),
        ("abc".join, "abd".join),
        (postprocess.BUILT_IN["spelled"], str.upper),
    ],
)
def test_functions_of_every_kind(one: Callable[..., str], other: Callable[..., str]) -> None:
    assert content_of(one) != content_of(other)
    assert content_of(one) == content_of(one)


class Scaled:
    def __init__(self, *values: object) -> None:
        self.values = values

    def __call__(self, text: str) -> str:
        return text


def test_objects_that_can_be_called() -> None:
    """By their state: arrays, tensors, tables, and themselves among them."""
    weights = [np.arange(3.0), np.arange(1.0, 4.0), torch.arange(3), torch.arange(3) > 1, 1.0]
    found = [content_of(Scaled(each)) for each in weights]
    assert len({*found}) == len(found)
    assert found == [content_of(Scaled(each)) for each in weights]
    itself = Scaled([])
    itself.values[0].append(itself)  # type: ignore[attr-defined]
    assert content_of(itself) != found[0]


def test_a_function_whose_content_cannot_be_read_is_refused() -> None:
    """In one line with a way out: an attribute that says what it does."""
    function = Scaled({"lock": threading.Lock()})
    with pytest.raises(UnknownContentError) as error:
        content_of(function)
    said = str(error.value)
    assert "Scaled cannot be compared: " in said
    assert "cannot pickle '_thread.lock' object; add an attribute identity" in said
    assert said.isprintable()
    first, second = Scaled(threading.Lock()), Scaled(threading.Lock())
    for each, name in ((first, "1"), (second, "2")):
        each.identity = name  # type: ignore[attr-defined]
    assert content_of(first) != content_of(second)
    second.identity = "1"  # type: ignore[attr-defined]
    assert content_of(first) == content_of(second)
    nested: list[object] = []
    for _ in range(10_000):
        nested = [nested]
    with pytest.raises(UnknownContentError, match="nested too deep"):
        content_of(Scaled(nested))
