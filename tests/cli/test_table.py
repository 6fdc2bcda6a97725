"""Tables in Markdown: one line a row, one cell a value."""

from asrkit.cli.table import markdown, row


def test_a_table_is_its_head_and_its_rows() -> None:
    table = markdown(["kind", "WER"], [["none", 20.5], ["t5", None]])
    assert table == "| kind | WER |\n|---|---|\n| none | 20.5 |\n| t5 | None |"
    assert table == "\n".join(
        [markdown(["kind", "WER"], []), row(["none", 20.5]), row(["t5", None])]
    )


def test_a_cell_with_a_bar_or_a_line_break_stays_one_cell() -> None:
    assert row(["a|b", "c\nd"]) == r"| a\|b | c d |"
