"""The tool that attacks a server counts what its neighbours meet."""

import importlib
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import PROJECT


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(PROJECT / "tools")
    return importlib.import_module("attack_server")


@pytest.mark.parametrize(
    ("seen", "sent", "found"),
    [
        ([(90.0, "upload", 15.0), (106.0, "upload", 1.0)], None, [15.0, 1.0]),
        ([(90.0, "upload", 2.0), (111.0, "upload", 1.0)], None, []),  # none in this time
        ([(101.0, "unserved", 0.1)], None, [math.inf]),
        ([], 105.0, [20.0]),
        ([], 111.0, []),  # sent later
    ],
)
def test_uploads_of_a_time_are_those_that_were_on_their_way(
    tool: Any, monkeypatch: pytest.MonkeyPatch, seen: list[tuple[float, str, float]],
    sent: float | None, found: list[float],
) -> None:  # fmt: skip
    neighbours = tool.Neighbours("ws://127.0.0.1:1/v1/stream", [], [])
    # The module's own clock: servers of other tests run in threads, and would sleep for hours.
    monkeypatch.setattr(tool, "time", SimpleNamespace(monotonic=lambda: 125.0))
    for at, kind, value in seen:
        neighbours.note(kind, value, at)
    neighbours.upload_sent = sent
    assert neighbours.uploads(100.0, 110.0) == found


def test_a_manifest_that_is_missing_is_named(tool: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"none\.jsonl does not exist"):
        tool.read(tmp_path / "none.jsonl")
