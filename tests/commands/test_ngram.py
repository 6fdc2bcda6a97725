"""Language models by command: estimated from texts, used to decode, refused in one line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import write_manifest
from tests.running import ONE_PASS, run

Shown = Callable[..., str]
Output = pytest.CaptureFixture[str]


@pytest.fixture
def arpa(tmp_path: Path) -> Path:
    return tmp_path / "lm.arpa"


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    (tmp_path / "texts.txt").write_text("ab ba\n\nba ab ba\nab\n")
    return tmp_path / "texts.txt"


def test_ngram_and_decoding_with_it(
    model: Path, wav: Path, arpa: Path, texts: Path, shown: Shown, capsys: Output
) -> None:
    """A language model of words and one of the model's tokens, by way of files, change the text."""
    search = ["--model", model, "--search", "prefix_beam", wav]
    found = {shown("decode", *search)}
    texts.write_text(texts.read_text() + "xyz\n")  # which the tokenizer cannot encode
    for units, count in (("words", 6), ("tokens", 6)):
        assert run("ngram", "--model", model, "--units", units, "--output", arpa, texts) == 0
        told = capsys.readouterr().err
        assert f"{arpa}: {count} 1-grams" in told
        assert ("1 texts left out; the first: not in the vocabulary" in told) == (units == "tokens")
        options = [*search, "--lm", arpa, "--lm-units", units]
        options += ["--lm-weight", "3", "--word-bonus", "1"]
        found.add(shown("decode", *options))
        assert shown("stream", *ONE_PASS, *options) in found
    assert len(found) == 3


def test_a_script_without_spaces_is_learned_by_its_characters(
    arpa: Path, texts: Path, shown: Shown
) -> None:
    """Each sentence was a word; control: a text of words keeps them."""
    texts.write_text("一二三\n三二，one一\n", encoding="utf-8")
    shown("ngram", "--order", 2, "--output", arpa, texts)
    grams = {line.split("\t")[1] for line in arpa.read_text().splitlines() if "\t" in line}
    assert grams >= {"一", "二", "三", "二，", "one", "一 二", "二 三", "<s> 一", "二， one"}
    assert {gram for gram in grams if "三二" in gram} == set()


def test_ngram_of_manifests(arpa: Path, texts: Path, capsys: Output) -> None:
    manifest = write_manifest(
        texts.with_name("m.jsonl"),
        *({"id": text, "audio": "none.wav", "text": text} for text in ("a b", "")),
    )
    texts.write_bytes("\ufeffb  c\r\n\u0061\u0308".encode())
    assert run("ngram", "--order", 9, "--output", arpa, manifest, texts) == 0
    assert "7 1-grams" in capsys.readouterr().err  # a, b, c, ä, <s>, </s>, <unk>
    assert "\tä" in arpa.read_text("utf-8")
    assert "ngram 4=" in arpa.read_text("utf-8")
    assert "ngram 5=" not in arpa.read_text("utf-8")  # no sentence is so long


def test_mistakes(
    model: Path, wav: Path, arpa: Path, texts: Path, shown: Shown, refused: Shown
) -> None:
    texts.write_text("NO YES\n")
    (latin := texts.with_name("latin")).write_bytes(b"a\n\xe4\n")
    shown("ngram", "--output", arpa, texts)
    greedy = ["decode", "--model", model, wav]
    beam, ngram = [*greedy, "--search", "prefix_beam"], ["ngram", "--output", arpa]
    for command, message in (
        ([*greedy, "--lm", arpa], "greedy takes no language model; prefix_"),
        ([*beam, "--lm", arpa], f"language model {arpa}: its words, such as 'NO', 'YES'"),
        ([*beam, "--lm", arpa, "--lm-units", "tokens"], "its words are 'NO', 'YES', expected"),
        ([*beam, "--lm", wav], "x.wav:"),
        ([*beam, "--lm", "none"], "the language model none does not exist"),
        ([*beam, "--lm-weight", "1"], "--lm-weight has no effect without --lm: leave"),
        ([*ngram, "none.txt"], "no text or manifest none.txt"),
        ([*ngram, "--units", "tokens", texts], "--units tokens needs a --model"),
        ([*ngram, latin], "latin:2: not UTF-8"),
        ([*ngram, "/dev/null"], "/dev/null is not a file"),
        ([*ngram, texts, "--prune", 1], "--prune must begin with 0, for 1-grams, and never fall"),
        ([*ngram, texts, "--prune", 0, 2, 1], "and never fall, got 0 2 1"),
    ):
        assert message in refused(*command)
