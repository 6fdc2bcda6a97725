"""A model that says much, a recording, and commands with what they print."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import speech, write_wav
from tests.running import run, talkative_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return talkative_model(tmp_path / "m.safetensors")


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    return write_wav(tmp_path / "x.wav", speech(2.0))


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that succeeds; return its standard output."""

    def call(*arguments: object, status: int = 0) -> str:
        capsys.readouterr()
        assert run(str(arguments[0]), *arguments[1:]) == status
        return capsys.readouterr().out

    return call


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that is a mistake; return its message of one line."""

    def call(*arguments: object) -> str:
        capsys.readouterr()
        assert run(str(arguments[0]), *arguments[1:]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert len(shown.err.splitlines()) == 1
        return shown.err

    return call
