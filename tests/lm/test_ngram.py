"""ARPA files: back-off by the definition, and errors that name the line."""

import gzip
import math
import random
from pathlib import Path

import pytest

from asrkit.lm import ArpaError, NGram, ngram, read_arpa
from asrkit.lm.kneser_ney import arpa_lines, estimate

ARPA = r"""
\data\
ngram 1=5
ngram 2=4
ngram 3=1

\1-grams:
-99 <s> -0.5
-0.8 </s>
-1.5 <unk> -0.1
-0.6 a -0.3
-0.9 b -0.2

\2-grams:
-0.4 <s> a -0.7
-0.3 a b -0.25
-0.5 b </s>
-0.35 b a

\3-grams:
-0.1 <s> a b

\end\
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "lm.arpa").write_text(ARPA)
    return tmp_path / "lm.arpa"


def logs(model: NGram, words: str) -> list[float]:
    """log10 of each word, and of the end."""
    state, found = model.start(), []
    for word in words.split():
        log_prob, state = model.score(state, word)
        found.append(log_prob)
    return [log_prob / math.log(10) for log_prob in [*found, model.finish(state)]]


def katz(entries: dict[tuple[str, ...], tuple[float, float]], words: tuple[str, ...]) -> float:
    """log10 p(last word | words before), by the definition."""
    if words in entries:
        return entries[words][0]
    if len(words) == 1:
        return entries["<unk>",][0]
    return entries.get(words[:-1], (0.0, 0.0))[1] + katz(entries, words[1:])


@pytest.mark.parametrize("seed", range(40))
def test_backing_off_is_by_the_definition(seed: int, tmp_path: Path) -> None:
    """Also of models with gaps: without some n-grams that no other has for its context."""
    draw = random.Random(seed)
    words = [f"w{i}" for i in range(6)]
    texts = [draw.choices(words, k=draw.randint(1, 8)) for _ in range(30)]
    orders = estimate(texts, draw.randint(2, 5))
    for size in range(len(orders), 1, -1):
        contexts = {gram[:-1] for gram in orders[size]} if size < len(orders) else set()
        for gram in [gram for gram in orders[size - 1] if gram not in contexts]:
            if draw.random() < 0.5:
                del orders[size - 1][gram]
    entries = {g: (e.log_prob, e.log_backoff or 0.0) for of in orders for g, e in of.items()}
    (tmp_path / "lm.arpa").write_text("\n".join(arpa_lines(orders)))
    model = read_arpa(tmp_path / "lm.arpa")
    for _ in range(30):
        sentence = draw.choices([*words, "zebra"], k=draw.randint(0, 9))
        history = ["<s>", *("<unk>" if word == "zebra" else word for word in sentence), "</s>"]
        expected = [
            katz(entries, tuple(history[max(0, i + 1 - len(orders)) : i + 1]))
            for i in range(1, len(history))
        ]
        assert logs(model, " ".join(sentence)) == pytest.approx(expected, abs=1e-5)


def test_control_a_state_without_shorter_contexts_is_noticed(path: Path) -> None:
    model = read_arpa(path)
    forgetful = model._replace(shorter=type(model.shorter)("l", [0] * len(model.shorter)))
    assert logs(forgetful, "b a b") != pytest.approx(logs(model, "b a b"))


def test_damaged_gzip_is_refused(path: Path) -> None:
    packed = path.with_suffix(".arpa.gz")
    for data in (gzip.compress(path.read_bytes())[:60], path.read_bytes()):
        packed.write_bytes(data)
        with pytest.raises(ArpaError, match="is not a gzipped file, or damaged"):
            read_arpa(packed)


def test_a_file_without_unk(path: Path) -> None:
    text = ARPA.replace("ngram 1=5", "ngram 1=4").replace("-1.5 <unk> -0.1\n", "")
    path.write_text(text)
    assert logs(read_arpa(path), "zebra")[0] == pytest.approx(-0.5 + ngram.NO_UNKNOWN)


def test_text_before_the_data_and_other_spaces(path: Path) -> None:
    expected = read_arpa(path)
    path.write_text("made by hand\n" + ARPA.replace(" ", "\t").replace("\n", " \r\n"))
    assert read_arpa(path) == expected


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\\data\\", "data", r"\d+: (no '\\data\\' in|the file ends before)"),
        ("ngram 1=5\n", "", "3: expected 'ngram 1=', got 'ngram 2=4'"),
        ("ngram 1=5", "ngram 1=6", r"14: expected 6 1-grams as in the header, got only 5"),
        ("ngram 3=1", "ngram 3=0", r"21: expected '\\end\\' after 0 n-grams, got '-0.1"),
        ("\\end\\", "", r"the file ends before '\\end\\'"),
        ("-0.6 a", "0.6 a", "11: log10 of a probability must be at most 0, got 0.6"),
        ("a -0.3", "a 1e308", "11: expected a number from -300 to 300, got '1e308'"),
        ("-0.6 a -0.3", "-0.6 a -0.3 7", "11: expected a log10 probability, 1 words, and opt"),
        ("-0.4 <s> a", "-0.4 <s> c", "15: 'c' is not among the 1-grams"),
        ("-0.4 <s> a -0.7", "-0.4 a a", "21: the context '<s> a' is not among the n-grams"),
        ("-0.35 b a", "-0.35 a b", "18: 'a b' occurs twice"),
        ("</s>", "</t>", "'</s>' is not among the 1-grams"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(old: str, new: str, message: str, path: Path) -> None:
    assert old in ARPA
    path.write_text(ARPA.replace(old, new))
    with pytest.raises(ArpaError, match=message):
        read_arpa(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (ARPA.encode().replace(b"-0.6 a", b"-0.6 \xff"), "11: not UTF-8: "),
        (b"mmap lm http://kheafield.com/code format version 5\n\0" + bytes(10**6),
         r"a line of more than \d+ bytes: not an ARPA file"),
        (b"x\n" * 1000, r"100: no '\\data\\' in 100 lines: not an ARPA file"),
        (ARPA.replace("-0.6 a", "-0.6 \x1b]0;title\x07" + "x" * 60_000 + " a b").encode(), "11: "),
    ],
    ids=range(4),
)  # fmt: skip
def test_file_that_is_not_text_is_refused(data: bytes, message: str, path: Path) -> None:
    path.write_bytes(data)
    with pytest.raises(ArpaError, match=message) as error:
        read_arpa(path)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 400
    with pytest.raises(ArpaError, match=r"the language model .* is a folder"):
        read_arpa(path.parent)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ARPA.replace("ngram 1=5", "ngram 1=999999999999999999"), "at most 10000000 n-grams, got "),
        ("\\data\\\n" + "".join(f"ngram {i}=1\n" for i in range(1, 13)) + "\\1-grams:\n",
         "the order must be at most 10, got 12"),
    ],
)  # fmt: skip
def test_file_beyond_the_limits_is_refused(text: str, message: str, path: Path) -> None:
    """A promise too large is refused before anything is read."""
    path.write_text(text)
    with pytest.raises(ArpaError, match=message):
        read_arpa(path)


@pytest.mark.parametrize("unknown", ["<UNK>", "<Unk>", "<unk>"])
def test_unknown_words_in_any_case_score_as_unk(unknown: str, path: Path) -> None:
    """KenLM takes <UNK> for <unk>; as an ordinary word it would leave unknown words at -10."""
    expected = logs(read_arpa(path), "zebra a")
    path.write_text(ARPA.replace("-0.35 b a", f"-0.35 b {unknown}").replace("<unk>", unknown))
    model = read_arpa(path)
    assert logs(model, "zebra a") == pytest.approx(expected)
    assert logs(model, "b zebra")[1] == pytest.approx(-0.35)
    assert not {"<UNK>", "<Unk>"} & {*model.words, *model.words_in_part()}


def test_files_may_be_gzipped_and_damaged(path: Path) -> None:
    expected = read_arpa(path)
    path.write_bytes(gzip.compress(ARPA.lstrip().encode("utf-16")))  # in spite of its name
    assert read_arpa(path) == expected
    path.write_bytes(ARPA.encode("utf-16") + b"\x00\xd8\x0a\x00")  # half a character
    with pytest.raises(ArpaError, match="damaged: 'utf-16"):
        read_arpa(path)
