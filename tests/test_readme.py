"""The README's examples: they run as they stand, and print what it says."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from asrkit.commands import ngram
from tests.conftest import PROJECT, write_wav
from tests.runtime.test_endpoint import said


def examples() -> str:
    """The Python of the section on the library."""
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    section = text[text.index("**From Python**") : text.index("**Export**")]
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 6
    return "\n".join(blocks)


def test_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_wav(tmp_path / "a.wav", said("four four seven"))
    texts = ["four four seven", "erase", "seven eleven"]
    (tmp_path / "texts.txt").write_text("\n".join(texts), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert ngram.main(["--order", "2", "texts.txt", "--output", "lm.arpa"]) == 0
    capsys.readouterr()
    exec(compile(examples(), "README.md", "exec"), {})
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert lines[0] == "four four seven"
    assert lines[1].startswith("Word(text='four', start=0.")
    assert "00:00:00" in lines[3]
    assert "True" in lines
    assert "['447']" in lines
    assert re.search(r"^four four seven -?\d+\.\d+ 0\.\d+$", shown, re.MULTILINE)
    assert lines[-1] == "four four seven"


def test_examples_are_typed(tmp_path: Path) -> None:
    (tmp_path / "readme.py").write_text(examples(), encoding="utf-8")
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(tmp_path / "pyproject.toml"),
         "--cache-dir", str(PROJECT / ".mypy_cache"), str(tmp_path / "readme.py")],
        cwd=PROJECT, capture_output=True, text=True,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout
