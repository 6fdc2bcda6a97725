"""More text for a language model: each format, the spelling, and what may not be in it."""

import gzip
import zlib
from pathlib import Path

import pytest

from tests.conftest import write_manifest
from tests.recipes.test_corpora import load_recipe, refuse

TEXTS = load_recipe("librispeech", "more_text")


def vector(lines: list[str]) -> bytes:
    """Lines as R's lazily loaded data has them."""
    data = b"X\n" + bytes(12) + b"\x00\x00\x00\x10" + len(lines).to_bytes(4, "big")
    for line in map(str.encode, lines):
        data += b"\x00\x04\x00\x09" + len(line).to_bytes(4, "big") + line
    return len(data).to_bytes(4, "big") + zlib.compress(data)


GCIDE = r"""Coagulate \Co*ag"u*late\, v. t. [imp. & p. p. {Coagulated}]
   To cause (a liquid) to change into a curd; to {curdle}. --Boyle.
   [1913 Webster]

   2. The rennet coagulates the milk of a cow. [Obs.]
"""
FORTUNES = """A banker lends you his umbrella.  He wants
it back when it rains.
\t\t-- Mark Twain, "Somewhere"
%
The year is 1984 and so on.
%
"""
WORDNET = """appetence
    n 1: a feeling of craving something; "an appetite for life"
         [syn: {appetite}, {appetency}]
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a file of each format."""
    files = {
        "austen": vector(["EMMA", "", "Mr. Weston was", "out. Emma's  day—was", "long.", ""])
        + vector(["Chapter 1", "", "Ann Elliot read to Mrs. Clay of naïve men."]),
        "fortunes": FORTUNES.encode(),
        "gcide": gzip.compress(GCIDE.encode()),
        "wordnet": gzip.compress(WORDNET.encode()),
        "anarchism": gzip.compress(b"# A heading of it\n\nWe *all* know [the way](x.html) home.\n"),
    }
    for name, data in files.items():
        pattern = TEXTS.SOURCES[name].pattern.replace("[a-z]*[a-z]", "art").replace("*", "a")
        path = tmp_path / "root" / pattern
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "root"


def texts_in(folder: Path) -> dict[str, list[str]]:
    return {path.stem: path.read_text().splitlines() for path in folder.glob("*.txt")}


def run(root: Path, out: Path, *options: object) -> dict[str, list[str]]:
    arguments = ["--root", root, "--output-dir", out, *options]
    assert TEXTS.main([str(argument) for argument in arguments]) == 0
    return texts_in(out)


def test_every_format(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert run(root, tmp_path / "out") == {
        "austen": ["mister weston was out", "emma's day was long",
                   "ann elliot read to missus clay of naive men"],
        "fortunes": ["a banker lends you his umbrella", "he wants it back when it rains"],
        "gcide": ["to cause to change into a curd to curdle",
                  "the rennet coagulates the milk of a cow"],
        "wordnet": ["a feeling of craving something an appetite for life"],
        "anarchism": ["we all know the way home"],
    }  # fmt: skip
    shown = capsys.readouterr().out
    written = run(root, tmp_path / "written", "--written", "--sources", "fortunes")
    assert written["fortunes"][0] == "A banker lends you his umbrella."
    assert "left out, not installed: bible, devil, jargon (apt-get install bible-kjv" in shown
    assert [line.split() for line in shown.splitlines() if "fortunes" in line] == [
        ["fortunes", "2", "13", "1", "digits"]
    ]


@pytest.mark.parametrize(
    ("sentence", "words", "reason", "written"),
    [
        ("\"Don't go,\" said St. John's wife.", "don't go said st john's wife", "",
         "Don't go, said St. John's wife."),
        ("‘Tis a dog’s life & no other", "tis a dog's life and no other", "", ""),
        ("He was--so he said—(a little) late ; no?", "he was so he said a little late no", "",
         "He was, so he said, a little late; no?"),
        ("Was he? -- No, ‘never’; a dog’s naïve _life_.", "was he no never a dog's naive life", "",
         "Was he? No, never; a dog's naive life."),
        ("-- Well-bred men,--he said", "well bred men he said", "", "Well-bred men, he said"),
        ("He paid 12 pounds for it", "", "digits", ""),
        ("see http://a.b/c for more", "", "other characters", ""),
        ("THE END OF IT", "", "headings and letters", ""),
        ("x y z are letters", "", "headings and letters", ""),
        ("Too short", "", "length", ""),
        ("so " * 61, "", "length", ""),
    ],
)  # fmt: skip
def test_spelling(sentence: str, words: str, reason: str, written: str) -> None:
    assert TEXTS.cleaned(sentence) == (words, reason)
    assert not written or TEXTS.written(sentence) == written


def test_sentences() -> None:
    text = 'Mr. Knightley came,\ni.e. he walked. "Did he?" Yes; he did: J. said so! No. 3 is out.'
    assert list(TEXTS.sentences(text)) == [
        "Mister Knightley came, i e he walked.", '"Did he?', "Yes; he did:", "J said so!",
        "Number 3 is out.",
    ]  # fmt: skip


def test_no_text_of_a_test_set(root: Path, tmp_path: Path) -> None:
    """Eight words in a row are too many; seven are chance."""
    rows = ["SAID ELLIOT READ TO MISSUS CLAY OF NAIVE MEN", "HE WANTS IT BACK WHEN IT SNOWS"]
    lines = ({"id": str(i), "audio": "a.wav", "text": text} for i, text in enumerate(rows))
    dev = write_manifest(tmp_path / "dev.jsonl", *lines)
    found = run(root, tmp_path / "out", "--without", dev)
    assert found["austen"] == ["mister weston was out", "emma's day was long"]
    assert "he wants it back when it rains" in found["fortunes"]


def test_what_is_missing_or_damaged(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out = ["--output-dir", tmp_path / "out", "--root"]
    message = refuse(TEXTS, [*out, root, "--sources", "devil"], capsys)
    assert message.endswith("has no devil: apt-get install dict-devil")
    assert "apt-get install r-cran-janeaustenr bible-kjv" in refuse(TEXTS, [*out, tmp_path], capsys)
    for name in ("austen", "gcide"):
        path = root / TEXTS.SOURCES[name].pattern
        path.write_bytes(path.read_bytes()[:-20])
        message = refuse(TEXTS, [*out, root, "--sources", name], capsys)
        assert f"cannot read {path}" in message
