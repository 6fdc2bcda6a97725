"""Rewriting results: the text of the user's function, the times of the words it was made from."""

import sys
from pathlib import Path
from typing import Any

import pytest

import asrkit
from asrkit.model_file import save_model
from asrkit.runtime import Word
from asrkit.runtime.postprocess import applied, find_postprocess, rewritten
from asrkit.runtime.word import joined
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
def test_join_spelled(spoken: str, written: str) -> None:
    assert join_spelled(spoken) == written


def words(text: str) -> list[Word]:
    """A word a second, each less sure than the one before."""
    return [Word(w, i, i + 0.5, 1.0 - i / 10) for i, w in enumerate(text.split())]


def test_times_of_rewritten_words() -> None:
    spoken = words("call four four seven at noon")
    assert rewritten(spoken, "call four four seven at noon") == spoken
    assert rewritten(spoken, "call 447 at noon") == [
        spoken[0], Word("447", 1, 3.5, spoken[3].confidence), *spoken[4:]
    ]  # fmt: skip
    capital = rewritten(spoken, "Call four four seven at Noon")
    assert [word.text for word in capital] == ["Call", "four", "four", "seven", "at", "Noon"]
    assert [word[1:] for word in capital] == [word[1:] for word in spoken]
    assert rewritten(words("gonna go"), "going to go")[:2] == [
        Word("going", 0, 0.25, 1.0), Word("to", 0.25, 0.5, 1.0)
    ]  # fmt: skip
    assert rewritten(words("well yes"), "yes") == words("well yes")[1:]
    assert rewritten(words("yes"), "« yes »") == [
        Word("«", 0, 0, 1.0), Word("yes", 0, 0.5, 1.0), Word("»", 0.5, 0.5, 1.0)
    ]  # fmt: skip
    assert rewritten(words("yes"), "") == []


def test_find_postprocess() -> None:
    assert find_postprocess("spelled") is join_spelled
    assert find_postprocess("asrkit.text.spelled:join_spelled") is join_spelled
    for name, message in [
        ("speled", r"no postprocess 'speled': write module:function, or a name of: .*spelled"),
        ("nowhere:f", "'nowhere:f': ModuleNotFoundError: No module named 'nowhere'"),
        ("asrkit.text.spelled:f", "'asrkit.text.spelled:f': .*no attribute 'f'"),
        ("asrkit.text.spelled:DIGITS", "is no function"),
        (":", "':'"),
        (5, "postprocess must be a function or the name of one, got 5"),
        (["spelled"], r"postprocess must be a function or the name of one, got \['spelled'\]"),
    ]:
        with pytest.raises(asrkit.UserError, match=message):
            find_postprocess(name)  # type: ignore[arg-type]


@pytest.mark.parametrize("returned", [None, 5, b"yes", ["yes"]])
def test_what_a_function_returns_is_text(returned: Any) -> None:
    with pytest.raises(asrkit.UserError, match="postprocess must return a text, got ") as error:
        applied(lambda text: returned, "yes")
    assert str(error.value).endswith(f"{returned!r} for 'yes'")


def test_a_function_that_fails_is_named() -> None:
    assert applied(str.upper, "yes") == "YES"
    with pytest.raises(asrkit.UserError, match="failed on 'yes': NameError: name 'yes'"):
        applied(eval, "yes")


def test_the_working_folder_offers_no_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package that lies there replaces no function, even where Python looks there first."""
    offer(tmp_path, "asrkit-9.0.dist-info", "spelled = bad:f\nloud = bad:f\n")
    (tmp_path / "bad.py").write_text("raise SystemError('this ran')\n")
    monkeypatch.chdir(tmp_path)
    for folder in ("", str(tmp_path)):
        monkeypatch.setattr(sys, "path", [folder, *sys.path])
        assert find_postprocess("spelled") is join_spelled
        with pytest.raises(asrkit.UserError, match="no postprocess 'loud'"):
            find_postprocess("loud")
    with pytest.raises(asrkit.UserError, match="'bad:f': SystemError: this ran"):
        find_postprocess("bad:f")


def test_an_installed_package_offers_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(tmp_path, "loud-1.0.dist-info", "loud = builtins:ascii\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert find_postprocess("loud") is ascii


def offer(folder: Path, package: str, functions: str) -> None:
    (folder / package).mkdir()
    name, version = package.removesuffix(".dist-info").split("-")
    (folder / package / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    (folder / package / "entry_points.txt").write_text(f"[asrkit.postprocess]\n{functions}")


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


def test_times_of_rewritten_characters() -> None:
    """A script without spaces: what stays has its time, what is added stands beside it."""
    spoken = [Word(c, i, i + 0.5, 0.9).with_space(not i) for i, c in enumerate("今天好吗")]
    assert rewritten(spoken, "今天好吗") == spoken
    marked = rewritten(spoken, "今天好吗？")
    assert marked == [*spoken[:3], spoken[3]._replace(text="吗？")]
    other = rewritten(spoken, "今天 很好吗")
    assert joined(other) == "今天 很好吗"
    assert [word.start for word in other] == [0, 1, 1.5, 2, 3]
    label = [Word("今天", 0.0, 1.0, 0.9), Word("好", 1.0, 2.0, 0.9).with_space(False)]
    assert [word[:3] for word in rewritten(label, "今天坏")] == [
        ("今", 0.0, 0.5), ("天", 0.5, 1.0), ("坏", 1.0, 2.0)
    ]  # fmt: skip
