"""How messages show a user's value."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from asrkit.errors import LONGEST, UserError, checked_token, printable, shown, whole_number


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
    assert printable("it's a \\ 日本語 é") == "it's a \\ 日本語 é"  # which can be seen


@pytest.mark.parametrize("value", ["x" * 50_000_000, Path("x" * 5000), 10**4000, ["x" * 80] * 9])
def test_long_values_lose_their_middle(value: object) -> None:
    text = shown(value)
    assert len(text) <= LONGEST
    assert "…" in text


@pytest.mark.parametrize("value", [5, 5.0, np.int16(5), np.float32(5), Fraction(5), 10**400])
def test_whole_numbers(value: object) -> None:
    found = whole_number(value, 5)
    assert found == value
    assert type(found) is int


@pytest.mark.parametrize(
    "value",
    [4, 10.5, 11, True, np.True_, "5", None, [5], 5j, *map(float, ("nan", "inf", "-inf"))],
)
def test_what_is_no_whole_number_of_a_range(value: object) -> None:
    assert whole_number(value, 5, 10) is None
    assert whole_number(10.0, 5, 10) == 10
    assert whole_number(float("inf"), 5) is None


@pytest.mark.parametrize("token", ["\ufeffkey123", "key 123", "kéy123", "key\x00123", "密123", ""])
def test_tokens_that_a_header_cannot_carry_are_refused_and_not_printed(token: str) -> None:
    with pytest.raises(UserError, match="the token") as refused:
        checked_token(token)
    assert "123" not in str(refused.value)
    assert checked_token("Key-1.2/3+4=_~") == "Key-1.2/3+4=_~"
