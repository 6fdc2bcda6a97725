"""The table of budgets names every folder, and its sum is at most the whole."""

import pytest

from tools import lines


def test_every_folder_has_a_budget(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = lines.lines_by_folder()
    assert counts.keys() <= lines.BUDGETS.keys()
    assert sum(lines.BUDGETS.values()) <= lines.TOTAL
    monkeypatch.setattr(lines, "BUDGETS", {"lm": counts["lm"] - 1})
    lines.main()
    rows = {name: others for name, *others in map(str.split, capsys.readouterr().out.splitlines())}
    assert rows["asrkit/lm"][-1] == "+1"
    assert rows["asrkit/runtime"][2] == "0"  # a folder without a budget
    assert int(rows["sum"][0].replace(",", "")) == counts.total()
