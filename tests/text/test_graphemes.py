"""Where a text can be divided: clusters, units, columns."""

import pytest

from asrkit.text import normalize
from asrkit.text.graphemes import (
    clusters,
    columns,
    in_one_line,
    is_character,
    spaced_units,
    units,
)

FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
CLUSTERS = [
    ["e\u0301", "a"],
    ["ก", "ที่", "น้ำ"],
    ["ไท", "ย"],  # the vowel is written before its consonant
    [FAMILY, "x"],
    ["\U0001f1e9\U0001f1ea", "\U0001f1eb\U0001f1f7", "\U0001f1e9"],
    ["\U0001f44d\U0001f3fd", "❤\ufe0f"],
    ["\u1112\u1161\u11ab", "\u1100\u1173", "각"],
    ["가\u1161\u1161", "각", "\u1161"],  # only an open syllable takes a vowel
    ["ក្រុ", "ម"],  # a consonant below another
    ["\u1015", "\u1014\u103a\u1038"],  # a mark with a width of its own, in Burmese
    ["क्षि", "क"],
    ["が", "\u304b\u3099"],
    ["\r\n", "a"],
]


@pytest.mark.parametrize("parts", CLUSTERS)
def test_clusters(parts: list[str]) -> None:
    assert clusters("".join(parts)) == parts


@pytest.mark.parametrize(
    "parts",
    [
        ["你", "好，", "世", "界。"],
        ["「你", "好」", "他", "说"],
        ["2024", "年", "iPhone", "手", "机"],
        ["きょ", "う", "は", "コー", "ヒー"],
        ["人々", "は"],
        ["ก", "ที่", "ไปๆ"],
        ["don't"],
        ["größer,"],
        ["서울에서"],
        ["नमस्ते"],
        ["a" * 5_000, "ก"],  # and in no time
        ["ก" + "។" * 5_000],
    ],
)
def test_units(parts: list[str]) -> None:
    """A script with spaces has words; the others have clusters with their punctuation."""
    assert units("".join(parts)) == parts


def test_units_of_a_text_are_words_and_characters() -> None:
    text = "I want 苹果 juice。 iPhone手机"
    found = ["I", "want", "苹", "果", "juice。", "iPhone", "手", "机"]
    assert units(f" {text}\n") == found
    assert "".join(spaced_units(text)).strip() == text
    assert "".join(spaced_units(text)[2:4]).strip() == "苹果"
    characters = [False, False, True, True, False, False, True, True]
    assert list(map(is_character, found)) == characters
    assert is_character("「ที่")
    assert not is_character("。")
    assert units(" ") == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("你好，\n世界。\r\n「再", "你好，世界。「再"),
        ("你好\n\n 世\n界", "你好世界"),
        ("ภาษา\nไทย", "ภาษาไทย"),
        ("你好 世界", "你好 世界"),  # a control: this space is not a line end
        ("你好\nworld\n再\t見", "你好 world 再 見"),
        (" one\ntwo ", "one two"),
        ("서울\n에서", "서울 에서"),
        ("你" + "\n" * 100_000 + "x", "你 x"),  # and in no time
    ],
)
def test_line_ends(text: str, line: str) -> None:
    """A line end is a space, but not in a script without spaces."""
    assert in_one_line(text) == normalize(text) == line


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("seven", 5), ("你好", 4), ("ที่", 1), ("น้ำ", 2), ("e\u0301", 1), ("", 0),
        ("\uff8a\uff21", 3),
    ],
)  # fmt: skip
def test_columns(text: str, width: int) -> None:
    assert columns(text) == width
