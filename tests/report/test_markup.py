"""Text is escaped wherever it meets markup, and what comes out is balanced."""

import re

import numpy as np
import pytest

from asrkit.report.errors import confused, pairs
from asrkit.report.html import Html, escaped, join, page, table, tag
from asrkit.report.posteriorgram import Example, picture
from asrkit.report.words import Pair
from tests.report.pages import Page

HOSTILE = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>&"


def test_text_is_escaped_and_markup_is_not() -> None:
    assert escaped("<b>") == "&lt;b&gt;"
    assert tag("p", "1 < 2", tag("b", "&")) == "<p>1 &lt; 2<b>&amp;</b></p>"
    assert tag("p", class_="x", data_value=1.26, hidden=True, title=None) == (
        '<p class="x" data-value="1.3" hidden></p>'
    )
    assert join(["<", tag("b")], " ") == "&lt; <b></b>"
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_control_markup_that_was_edited_is_text_again() -> None:
    """What `+` and f-strings make of markup has met unescaped text: it is escaped as a whole."""
    for edited in (tag("b") + HOSTILE, f"{tag('b')}{HOSTILE}", tag("b", "x").upper()):
        assert "<" not in escaped(edited)


@pytest.mark.parametrize("value", [HOSTILE, Html(HOSTILE)])
def test_attributes_are_always_escaped(value: str) -> None:
    found = Page.of(tag("p", title=value))
    assert found.tags == ["p"]
    assert found.attributes == [("title", HOSTILE)]


def test_hostile_text_anywhere_is_text() -> None:
    found = Page.of(
        page(HOSTILE, tag("h1", HOSTILE), table([HOSTILE], [[HOSTILE, HOSTILE]], title=HOSTILE))
    )
    assert found.open == []
    assert "img" not in found.tags
    assert found.tags.count("script") == 1
    assert found.text.count(HOSTILE) == 5


def test_control_without_escaping_it_would_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asrkit.report.html.html.escape", str)
    assert Page.of(tag("p", "<script>alert(1)</script>")).tags == ["p", "script"]


def test_the_page_may_load_nothing() -> None:
    (policy,) = (v for k, v in Page.of(page("x")).attributes if v and "default-src" in v)
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2]


def test_words_from_right_to_left() -> None:
    """The first word decides the direction of a text; each word keeps its own."""
    pair = Pair("\u0646\u0639\u0645", "\u0644\u0627")
    assert 'dir="auto"' in pairs([pair]).partition(">")[0]
    assert confused(pair) == f"<bdi>{pair.reference}</bdi> → <bdi>{pair.hypothesis}</bdi>"
    assert '<th scope="row" dir="auto">' in table(["word"], [["x"]])


def test_labels_of_a_picture_do_not_overlap() -> None:
    """Text of 12 px with marks below the line needs 16."""
    posteriors = np.eye(5)
    pieces = ["", *(f" {letter}" for letter in "gjqy")]
    drawn = picture(Example(0.2, np.zeros(3200), posteriors, pieces, 0.04, 0.0, (), ()))
    (rows,) = (part for part in drawn.split("<g") if "␣g" in part)
    heights = [float(y) for y in re.findall(r'<text x="[\d.]+" y="([\d.]+)"', rows)]
    assert len(heights) == 4
    assert np.diff(heights).min() >= 16
