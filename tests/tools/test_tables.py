"""The page of all keys says what the schema says. The table of budgets names every folder."""

import pytest

from tools import configuration, lines


def test_the_page_is_up_to_date() -> None:
    assert configuration.PAGE.read_text(encoding="utf-8") == configuration.page(), (
        "python tools/configuration.py"
    )


def test_control_every_key_is_on_the_page() -> None:
    page = configuration.page()
    assert "| `max_batch_seconds` | `32.0` | number, > 0 | Seconds of audio in a batch" in page
    assert "| `chunk_sizes` | `[4, 8, 16, 25]` | a list of integers, ≥ 1, ≤ 3000 |" in page
    assert "- `{kind: prefix_beam, beam: 10," in page


def test_every_folder_has_a_budget(capsys: pytest.CaptureFixture[str]) -> None:
    counts = lines.lines_by_folder()
    assert counts.keys() <= lines.BUDGETS.keys()
    assert sum(lines.BUDGETS.values()) <= lines.TOTAL
    lines.main()
    rows = dict(line.split()[:2] for line in capsys.readouterr().out.splitlines())
    assert int(rows["sum"].replace(",", "")) == counts.total()
