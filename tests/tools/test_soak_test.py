"""A minute of the soak of a server, while it is replaced and its Redis goes away."""

import shutil
import sys

import pytest

from tests.conftest import PROJECT, RECORDINGS


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="--workers is for Linux")
@pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")
def test_no_call_is_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("redis")
    monkeypatch.syspath_prepend(PROJECT / "tools")
    import soak_test

    options = ["--minutes", "1", "--talkers", "2", "--troublemakers", "2", "--redis"]
    options += ["--disturb-s", "15", "--serve", "--workers 2"]
    manifest = f"{RECORDINGS}/an4/dev.jsonl"
    monkeypatch.setattr(soak_test, "AWAY_S", 5.0)
    monkeypatch.setattr(sys, "argv", ["soak_test.py", *options, manifest])
    assert soak_test.main() == 0
    assert "| 1 | 0 |" not in capsys.readouterr().out  # calls were made
