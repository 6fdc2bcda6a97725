"""How messages show a user's value."""

from pathlib import Path

import pytest

from asrkit.errors import LONGEST, printable, shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("16", "'16'"),
        (16, "16"),
        (Path("a b.wav"), "a b.wav"),
        (Path("C:\\x"), "C:\\x"),
        ("grün", "'grün'"),
        ("\x1b]0;title\x07\x9b1m\x7f", r"'\x1b]0;title\x07\x9b1m\x7f'"),
        (Path("two\nlines\udcff"), r"two\nlines\udcff"),
        ("\u202eright to left\u2028", r"'\u202eright to left\u2028'"),
        (["\x1b"], r"['\x1b']"),
        pytest.param(1 << 20_000, "int of too many digits", id="huge"),
    ],
)
def test_shown(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize("value", ["x" * 50_000_000, Path("x" * 5000), 10**4000, ["x" * 80] * 9])
def test_long_values_lose_their_middle(value: object) -> None:
    text = shown(value)
    assert len(text) <= LONGEST
    assert "…" in text


def test_what_grows_when_written_out_stays_small() -> None:
    bomb: list = ["x"]
    for _ in range(40):
        bomb = [bomb] * 9
    assert len(shown(bomb)) <= LONGEST


def test_a_repr_of_several_lines() -> None:
    class Odd:
        def __repr__(self) -> str:
            return "two\nlines"

    assert shown(Odd()) == r"two\nlines"


def test_printable_keeps_what_can_be_seen() -> None:
    assert printable("it's a \\ 日本語 é") == "it's a \\ 日本語 é"
