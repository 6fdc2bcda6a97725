"""Before training, a line says which words of dev cannot be written, or that it holds none."""

import json
from pathlib import Path

import pytest

from asrkit.config import Config, load_config
from asrkit.model_file import load_model
from asrkit.train import main
from asrkit.training.dataset import Corpus, load_corpus
from asrkit.training.dev_texts import dev_warning, trained_warning
from tests.conftest import write_config, write_manifest
from tests.running import run


def with_texts(corpus: Path, texts: list[str]) -> Path:
    """The dev set with these texts, in place of the former."""
    lines = [json.loads(line) for line in (corpus / "dev.jsonl").read_text().splitlines()]
    new = [line | {"text": text} for line, text in zip(lines, texts, strict=True)]
    return write_manifest(corpus / "dev.jsonl", *new)


def loaded(corpus: Path, tmp_path: Path, *overrides: str) -> tuple[Corpus, Config]:
    config = load_config(write_config(tmp_path / "c.yaml", corpus, tmp_path / "out"), [*overrides])
    return load_corpus(config), config


def test_words_that_words_cannot_write(corpus: Path, tmp_path: Path) -> None:
    with_texts(corpus, ["yes maybe", "Maybe maybe", "no"])
    found = dev_warning(*loaded(corpus, tmp_path, "text.tokenizer=words", "text.case=lower"))
    assert found is not None
    assert "3 of 5 words cannot be written" in found
    assert "60 % WER or more" in found
    assert "1 different: 'maybe' 3×; text.tokenizer=words can write only the words of" in found


def test_letters_that_characters_cannot_write(corpus: Path, tmp_path: Path) -> None:
    with_texts(corpus, ["yes né", "no", "no"])
    found = dev_warning(*loaded(corpus, tmp_path))
    assert found is not None
    assert "1 of 4 words cannot be written" in found
    assert "'né' 1×; add recordings with their letters" in found


def test_characters_of_scripts_without_spaces_are_counted_singly(
    corpus: Path, tmp_path: Path
) -> None:
    with_texts(corpus, ["yes 你no好", "no", "no"])
    found = dev_warning(*loaded(corpus, tmp_path))
    assert found is not None
    assert "2 of 6 units cannot be written" in found
    assert "(33 % MER or more); 2 different: '你' 1×, '好' 1×" in found


def test_the_texts_of_an_index_are_those_that_are_scored(corpus: Path, tmp_path: Path) -> None:
    """Not those of the rows in its place: the first utterance, too short, is left out."""
    path, shards = with_texts(corpus, ["zebra", "maybe", "no"]), corpus / "shards"
    assert run("data", "shard", path, "--output", shards) == 0
    overrides = (f"data.dev={shards}", "text.tokenizer=words", "data.min_seconds=1.1")
    found = dev_warning(*loaded(corpus, tmp_path, *overrides))
    assert found is not None
    assert "1 of 2 words cannot be written" in found
    assert "'maybe' 1×;" in found


def test_control_a_dev_set_that_can_be_written(corpus: Path, tmp_path: Path) -> None:
    for tokenizer in ("words", "characters"):
        assert dev_warning(*loaded(corpus, tmp_path, f"text.tokenizer={tokenizer}")) is None


@pytest.mark.parametrize(
    ("dev", "expected"),
    [
        ("train.jsonl", " is in data.train too; its scores do not predict"),
        ("../corpus/train.jsonl", " is in data.train too; "),
        ("some.jsonl", " has 2 of 3 recordings in data.train too; "),
        ("dev.jsonl", None),
    ],
)
def test_a_dev_set_that_is_trained_on(
    dev: str, expected: str | None, corpus: Path, tmp_path: Path
) -> None:
    first, second = [(corpus / f"{name}.jsonl").read_text().splitlines() for name in
                     ("train", "dev")]  # fmt: skip
    (corpus / "some.jsonl").write_text("\n".join([*first[:2], second[0]]))
    (corpus / "other.jsonl").write_text(second[1])
    several = f"data.train=[{corpus / 'other.jsonl'}, {corpus / 'train.jsonl'}]"
    for overrides in ((), (several,)):
        found = trained_warning(*loaded(corpus, tmp_path, f"data.dev={corpus / dev}", *overrides))
        if dev == "dev.jsonl" and overrides:
            expected = " has 1 of 3 recordings in data.train too; "
        assert found == expected if expected is None else expected in (found or "")


def test_a_dev_set_without_words_has_no_rate(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither in the log, nor in the model file, nor on the page of the report."""
    dev, out = with_texts(corpus, ["", " ", ""]), tmp_path / "out"
    config = write_config(tmp_path / "c.yaml", corpus, out, epochs=2, average=1)
    assert main(["--config", str(config)]) == 0
    log = (out / "train.log").read_text()
    before, _, after = log.partition("none of its 3 texts has a word")
    assert "epoch 1/2" in after
    assert "epoch 1/2" not in before
    assert "dev WER  no reference words" in log
    assert "dev CER  no reference words" in log
    assert "WER     full  no reference words (" in log
    assert "0.00 %" not in log
    training = load_model(out / "model.safetensors").training
    assert training["dev_wer"] == training["dev_cer"] == {}
    assert training["averaged_epochs"] == [2]
    assert run("report", out, "--manifest", dev, "--output", tmp_path / "r.html") == 0
    page = (tmp_path / "r.html").read_text()
    assert "no words" in page
    assert "0.00 %" not in page
    capsys.readouterr()
