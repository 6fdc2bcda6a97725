"""Rewriting results: the text of the user's function, the times of the words it was made from."""

import functools
from pathlib import Path

import pytest

import asrkit
from asrkit.errors import UserError
from asrkit.model_file import save_model
from asrkit.runtime.postprocess import applied, find_postprocess, identity_of
from asrkit.text import CharTokenizer
from asrkit.text.spelled import join_spelled
from tests.conftest import speech
from tests.test_model_file import a_file


@pytest.mark.parametrize(
    ("spoken", "written"),
    [
        ("four four seven", "447"),
        ("RUBOUT C Y R SEVEN EIGHT", "RUBOUT CYR 78"),
        ("nine oh two one oh", "90210"),
        ("oh oh", "oh oh"),
        ("oh no", "oh no"),
        ("one", "one"),
        ("a", "a"),
        ("call a b c on one two please", "call ABC on 12 please"),
        ("x 7 seven", "x 7 seven"),
        ("", ""),
    ],
)
def test_spelled_letters_and_digits_are_joined(spoken: str, written: str) -> None:
    assert join_spelled(spoken) == written


def test_postprocess_is_found_by_name_or_refused() -> None:
    assert find_postprocess("spelled") is join_spelled
    assert find_postprocess("asrkit.text.spelled:join_spelled") is join_spelled
    for name, message in [
        ("speled", "no postprocess 'speled': write module:function, or spelled"),
        ("nowhere:f", "'nowhere:f': ModuleNotFoundError: No module named 'nowhere'"),
        ("asrkit.text.spelled:f", "'asrkit.text.spelled:f': .*no attribute 'f'"),
        (
            "asrkit.text.spelled:DIGITS",
            "postprocess must be a function, got 'asrkit.text.spelled:DIGITS'",
        ),
        (":", "':'"),
        (5, "postprocess must be a function or the name of one, got 5"),
        (["spelled"], r"postprocess must be a function or the name of one, got \['spelled'\]"),
    ]:
        with pytest.raises(asrkit.UserError, match=message):
            find_postprocess(name)  # type: ignore[arg-type]


def test_a_function_that_fails_or_returns_no_text_is_refused() -> None:
    assert applied(str.upper, "yes") == "YES"
    for returned in (None, 5, b"yes", ["yes"]):
        with pytest.raises(asrkit.UserError, match="postprocess must return a text, got ") as error:
            applied(lambda text, returned=returned: returned, "yes")
        assert str(error.value).endswith(f"{returned!r} for 'yes'")
    with pytest.raises(asrkit.UserError, match="failed on 'yes': NameError: name 'yes'"):
        applied(eval, "yes")


def test_a_result_is_rewritten_by_segments(tmp_path: Path) -> None:
    save_model(tmp_path / "m.safetensors", a_file(CharTokenizer(list("abcdefghij "))))
    plain = asrkit.load(tmp_path / "m.safetensors").transcribe(speech(3.0))
    assert plain.text
    for postprocess in (str.swapcase, "builtins:repr"):
        session = asrkit.load(tmp_path / "m.safetensors", postprocess=postprocess).start()
        partial = session.accept(speech(3.0))
        final = session.finish()
        expected = str.swapcase(plain.text) if postprocess is str.swapcase else repr(plain.text)
        assert final.text == " ".join(word.text for word in final.words) == expected
        assert [word.start for word in final.words] == [word.start for word in plain.words]
        assert partial.open_text == partial.text != ""


def test_a_function_without_a_source_of_its_own_needs_an_identity() -> None:
    def inner(text: str) -> str:
        return text

    for function in (inner, lambda text: text, functools.partial(inner), "a".join):
        with pytest.raises(UserError, match="cannot be saved: set its attribute identity to a"):
            identity_of(function)
    inner.identity = "1"  # type: ignore[attr-defined]
    first = identity_of(inner)
    assert identity_of(inner) == first
    inner.identity = "2"  # type: ignore[attr-defined]
    assert identity_of(inner) != first
