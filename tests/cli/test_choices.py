"""Options that name a choice: the help has every name of its owner, and imports no torch for it."""

from collections.abc import Iterable

import pytest

from asrkit.__main__ import COMMANDS
from asrkit.backends import BACKENDS
from asrkit.backends.export_metadata import CONTENTS
from asrkit.data.corpora import KINDS
from asrkit.data.corpora.registry import READERS
from asrkit.interop import FORMATS as CHECKPOINTS
from asrkit.runtime.endpoint import EAGERNESS, PAUSE_MS
from asrkit.runtime.formats import FORMATS
from tests.running import python, run


@pytest.mark.parametrize(
    ("command", "option", "names"),
    [
        ("decode", "--backend", BACKENDS),
        ("decode", "--end-of-turn", EAGERNESS),
        ("decode", "--format", FORMATS),
        ("stream", "--endpoint-ms", [str(PAUSE_MS)]),
        ("import", "TOOLKIT", CHECKPOINTS),
        ("export", "--what", CONTENTS),
    ],
)
def test_help_has_every_name(
    command: str,
    option: str,
    names: Iterable[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")  # no name is broken at its hyphen
    with pytest.raises(SystemExit):
        run(command, "--help")
    _, _, shown = capsys.readouterr().out.partition("\n\n")  # after the usage
    meaning = shown.partition(f" {option} ")[2].partition(" --")[0]
    assert [name for name in names if name not in meaning] == []


def test_every_kind_of_corpus_has_a_reader() -> None:
    assert list(KINDS) == list(READERS)


HELP = f"""
import sys
from asrkit.__main__ import main
for command in {[*COMMANDS]}:
    try:
        main([*command.split(), "--help"])
    except SystemExit:
        pass
slow = {{"torch", "numpy", "pydantic", "asyncio", "importlib.metadata"}}
print(sorted(slow & sys.modules.keys()))
"""


@pytest.mark.parametrize("program", [HELP, f"import numpy{HELP}"])
def test_help_imports_neither_torch_nor_numpy(program: str) -> None:
    """Of any command; with numpy, as a control."""
    done = python(program)
    assert done.stdout.count("usage: asrkit") == len(COMMANDS)
    assert ("numpy" in done.stdout.splitlines()[-1]) == (program != HELP)
    assert (done.stdout.splitlines()[-1] == "[]") == (program == HELP)
