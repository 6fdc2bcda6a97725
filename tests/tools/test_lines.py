"""The table of budgets names every folder, and its sum is at most the whole."""

import pytest

from tools import lines


def test_every_folder_has_a_budget(capsys: pytest.CaptureFixture[str]) -> None:
    counts = lines.lines_by_folder()
    assert counts.keys() <= lines.BUDGETS.keys()
    assert sum(lines.BUDGETS.values()) <= lines.TOTAL
    lines.main()
    rows = dict(line.split()[:2] for line in capsys.readouterr().out.splitlines())
    assert int(rows["sum"].replace(",", "")) == counts.total()
