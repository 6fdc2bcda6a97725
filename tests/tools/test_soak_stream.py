"""The comparison of a long stream's cycles, and a short run of it."""

import sys
from types import ModuleType

import pytest

from asrkit.runtime import Word
from tests.conftest import PROJECT, RECORDINGS


@pytest.fixture
def soak_stream(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(PROJECT / "tools")
    import soak_stream

    return soak_stream


def test_what_differs(soak_stream: ModuleType) -> None:
    words = [Word("a", 1.0, 1.2, 0.9), Word("b", 2.0, 2.5, 0.9)]
    later = [Word("a", 11.0, 11.2, 0.9), Word("b", 12.0, 12.502, 0.9)]
    assert soak_stream.differences(words, words) == 0
    assert soak_stream.differences(later, words, 10.0) == 1  # 2 ms
    assert soak_stream.differences(later[:1], words, 10.0) == 1
    assert soak_stream.differences([Word("c", 1.0, 1.2, 0.9)], words[:1]) == 1


@pytest.mark.slow
def test_some_minutes(soak_stream: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = str(RECORDINGS / "an4" / "dev.jsonl")
    monkeypatch.setattr(sys, "argv", ["soak_stream.py", manifest, "--hours", "0.1"])
    assert soak_stream.main() == 0
