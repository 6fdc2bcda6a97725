"""Language models by command: estimated from texts, used to decode, refused in one line."""

import json
from pathlib import Path

import pytest
import soundfile

from tests.conftest import speech
from tests.running import ONE_PASS, run, talkative_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return talkative_model(tmp_path / "m.safetensors")


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    soundfile.write(tmp_path / "x.wav", speech(2.0), 16000)
    return tmp_path / "x.wav"


def test_ngram_and_decoding_with_it(
    model: Path, wav: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A language model of words and one of the model's tokens, by way of files, change the text."""
    texts = tmp_path / "texts.txt"
    texts.write_text("ab ba\n\nba ab ba\nab\n")
    search = ["--model", model, "--search", "prefix_beam"]
    assert run("decode", *search, wav) == 0
    found = {capsys.readouterr().out}
    for units in ("words", "tokens"):
        arpa = tmp_path / f"{units}.arpa"
        assert run("ngram", "--model", model, "--units", units, "--output", arpa, texts) == 0
        shown = capsys.readouterr().err
        assert f"{arpa}: {'5 1-grams' if units == 'words' else '6 1-grams'}" in shown
        options = [*search, "--lm", arpa, "--lm-units", units]
        options += ["--lm-weight", "3", "--word-bonus", "1"]
        assert run("decode", *options, wav) == 0
        found.add(capsys.readouterr().out)
        assert run("stream", *ONE_PASS, *options, wav) == 0
        assert capsys.readouterr().out in found
    assert len(found) == 3


def test_a_script_without_spaces_is_learned_by_its_characters(tmp_path: Path) -> None:
    """Each sentence was a word; control: a text of words keeps them."""
    texts, arpa = tmp_path / "texts.txt", tmp_path / "lm.arpa"
    texts.write_text("一二三\n三二，one一\n", encoding="utf-8")
    assert run("ngram", "--order", 2, "--output", arpa, texts) == 0
    grams = {line.split("\t")[1] for line in arpa.read_text().splitlines() if "\t" in line}
    assert grams >= {"一", "二", "三", "二，", "one", "一 二", "二 三", "<s> 一", "二， one"}
    assert {gram for gram in grams if "三二" in gram} == set()


def test_a_language_model_of_other_words_is_reported(
    model: Path, wav: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Words that cannot be written when it is loaded, and words that it lacks at the end."""
    texts, arpa = tmp_path / "texts.txt", tmp_path / "lm.arpa"
    texts.write_text("AB BA\nab\n")
    assert run("ngram", "--output", arpa, texts) == 0
    options = ["--model", model, "--search", "prefix_beam", "--lm", arpa, "--lm-weight", "0.01"]
    capsys.readouterr()
    assert run("decode", *options, wav) == 0
    assert (
        f"language model {arpa}: 67 % of its words, such as 'AB', 'BA', cannot be written with "
        "the recogniser's tokens as one word: estimate a model by asrkit ngram --model"
    ) in caplog.text
    said = capsys.readouterr().err
    assert "recognised words, such as" in said
    assert "are not in the language model: check its language and spelling" in said


def test_a_model_too_large_to_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.txt").write_text("to be or not\n")
    for most, told in ((1000, False), (10, True)):
        monkeypatch.setattr("asrkit.commands.ngram.MAX_NGRAMS", most)
        assert run("ngram", "--output", tmp_path / "lm.arpa", tmp_path / "t.txt") == 0
        assert ("reads at most 10 n-grams: use --prune" in capsys.readouterr().err) is told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prune", 1], "--prune must begin with 0, for 1-grams, and never fall, got 1"),
        (["--prune", 0, 2, 1], "and never fall, got 0 2 1"),
    ],
)
def test_ngram_options_that_cannot_be(
    options: list[object],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text("a b\n")
    assert run("ngram", "--output", "lm.arpa", "t.txt", *options) == 2
    assert message in capsys.readouterr().err


def test_ngram_of_manifests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        {"id": str(i), "audio": "none.wav", "text": text} for i, text in enumerate(["a b", ""])
    ]
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "t.txt").write_bytes("\ufeffb  c\r\n\u0061\u0308".encode())
    out = tmp_path / "new" / "lm.arpa"
    paths = [tmp_path / "m.jsonl", tmp_path / "t.txt"]
    assert run("ngram", "--order", 9, "--output", out, *paths) == 0
    assert "7 1-grams" in capsys.readouterr().err  # a, b, c, ä, <s>, </s>, <unk>
    assert "\tä" in out.read_text("utf-8")
    assert "ngram 4=" in out.read_text("utf-8")
    assert "ngram 5=" not in out.read_text("utf-8")  # no sentence is so long


def test_ngram_leaves_out_what_the_tokenizer_cannot_write(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.txt").write_text("ab\nöl\nxyz\n")
    options = ["--units", "tokens", "--output", tmp_path / "lm.arpa", tmp_path / "t.txt"]
    assert run("ngram", "--model", model, *options) == 0
    assert "2 texts left out; the first: not in the vocabulary" in capsys.readouterr().err


def test_bad_language_models(
    model: Path, wav: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, texts = tmp_path / "lm.arpa", tmp_path / "t.txt"
    texts.write_text("NO YES\n")
    (tmp_path / "latin").write_bytes(b"a\n\xe4\n")
    assert run("ngram", "--output", out, texts) == 0
    capsys.readouterr()
    beam = ["--model", model, "--search", "prefix_beam", wav]
    cases = [
        ("decode", ["--model", model, "--lm", out, wav], "greedy takes no language model; prefix_"),
        (
            "decode",
            ["--lm", out, *beam],
            f"language model {out}: its words, such as 'NO', 'YES'",
        ),
        (
            "decode",
            ["--lm", out, "--lm-units", "tokens", *beam],
            "its words are 'NO', 'YES', expected",
        ),
        ("decode", ["--lm", wav, *beam], "x.wav:"),
        ("decode", ["--lm", "none", *beam], "the language model none does not exist"),
        ("decode", ["--lm-weight", "1", *beam], "--lm-units, --lm-weight and --word-bonus need an"),
        ("ngram", ["--output", out, "none.txt"], "no text or manifest none.txt"),
        ("ngram", ["--output", out, "--units", "tokens", texts], "--units tokens needs a --model"),
        ("ngram", ["--output", out, tmp_path / "latin"], "latin:2: not UTF-8"),
        ("ngram", ["--output", out, "/dev/null"], "/dev/null is not a file"),
    ]
    for command, options, message in cases:
        assert run(command, *options) == 2
        shown = capsys.readouterr().err
        assert message in shown
        assert len(shown.splitlines()) == 1
