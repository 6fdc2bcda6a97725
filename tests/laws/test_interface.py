"""Names that programs and scripts depend on stay: see docs/evidence/guarantees.md.

`python -m tests.laws.test_interface > tests/kept/interface.json` adds new names. A name may only
leave this file after the version in which its use warned.
"""

import inspect
import json
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from io import StringIO
from typing import Any

import pytest

import asrkit
from asrkit.__main__ import COMMANDS
from asrkit.config.schema import Config
from tests.kept.measured import FOLDER
from tests.running import run

CLASSES = ("Batcher", "Endpointer", "Recognizer", "Result", "Segment", "Session", "Word")


def python_names() -> Iterator[str]:
    """Yield the public names, with the arguments of each and their defaults."""
    yield from asrkit.__all__
    found = {"load": asrkit.load}
    for name in CLASSES:
        kind = getattr(asrkit, name)
        found[name] = kind
        members = {each: getattr(kind, each) for each in dir(kind) if each[0] != "_"}
        yield from (f"{name}.{each}" for each in members)
        found |= {f"{name}.{each}": it for each, it in members.items() if inspect.isfunction(it)}
    for name, call in found.items():
        for each, parameter in inspect.signature(call).parameters.items():
            default = getattr(parameter.default, "__name__", repr(parameter.default))
            yield f"{name}({each})" if default == "_empty" else f"{name}({each}={default})"


def options() -> Iterator[str]:
    """Yield the options of each command."""
    for words in COMMANDS:
        text = StringIO()
        with redirect_stdout(text), suppress(SystemExit):
            run(words.split()[0], *words.split()[1:], "--help")
        found = re.findall(r"^ {2}(?:-\w, )?(--[\w-]+)", text.getvalue(), re.MULTILINE)
        yield from (f"{words} {each}" for each in found)


def settings(model: Any = Config, before: str = "") -> Iterator[str]:
    """Yield the keys of a configuration."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        fields = getattr(kind, "model_fields", {"kind": None})
        if "kind" in fields:  # a value, or a section whose options its kind decides
            yield f"{before}{name}"
        else:
            yield from settings(kind, f"{before}{name}.")


def interface() -> dict[str, list[str]]:
    kinds = {"python": python_names(), "options": options(), "settings": settings()}
    return {kind: sorted(set(names)) for kind, names in kinds.items()}


def beyond(names: dict[str, list[str]], others: dict[str, list[str]]) -> list[str]:
    """Return the names that others lack."""
    return [name for kind, each in names.items() for name in each if name not in others[kind]]


def test_promised_names_stay_and_new_ones_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    kept, found = json.loads((FOLDER / "interface.json").read_text(encoding="utf-8")), interface()
    assert beyond(kept, found) == []
    assert beyond(found, kept) == []  # else run this module as above
    assert min(map(len, found.values())) > 50
    for kind, names in found.items():  # the control: a name that goes
        assert beyond(kept, {**found, kind: names[1:]}) == names[:1]


if __name__ == "__main__":
    json.dump(interface(), sys.stdout, indent=1)
    print()
