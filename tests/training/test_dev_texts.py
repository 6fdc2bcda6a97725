"""Before training, a line says which words of dev cannot be written, or that it holds none."""

import json
from pathlib import Path

import pytest

from asrkit.config import Config, load_config
from asrkit.model_file import load_model
from asrkit.train import main
from asrkit.training.dataset import Corpus, load_corpus
from asrkit.training.dev_texts import dev_warning
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


@pytest.mark.parametrize(
    ("texts", "tokenizer", "expected"),
    [
        (["yes maybe", "Maybe maybe", "no"], "words",
         ["3 of 5 words cannot be written", "60 % WER or more",
          "1 different: 'maybe' 3×; text.tokenizer=words can write only the words of"]),
        (["yes né", "no", "no"], "characters",
         ["1 of 4 words cannot be written", "'né' 1×; add recordings with their letters"]),
        (["yes 你no好", "no", "no"], "characters",
         ["2 of 6 units cannot be written", "(33 % MER or more); 2 different: '你' 1×, '好' 1×"]),
        (["yes", "no", "no"], "words", []),
        (["yes", "no", "no"], "characters", []),
    ],
)  # fmt: skip
def test_words_that_the_labels_cannot_write(
    texts: list[str], tokenizer: str, expected: list[str], corpus: Path, tmp_path: Path
) -> None:
    with_texts(corpus, texts)
    overrides = (f"text.tokenizer={tokenizer}", "text.case=lower")
    found = dev_warning(*loaded(corpus, tmp_path, *overrides)) or ""
    assert bool(found) == bool(expected)
    assert all(part in found for part in expected)


def test_the_texts_of_an_index_are_those_that_are_scored(corpus: Path, tmp_path: Path) -> None:
    """Not those of the rows in its place: the first utterance, too short, is left out."""
    path, shards = with_texts(corpus, ["zebra", "maybe", "no"]), corpus / "shards"
    assert run("data", "shard", path, "--output", shards) == 0
    overrides = (f"data.dev={shards}", "text.tokenizer=words", "data.min_seconds=1.1")
    found = dev_warning(*loaded(corpus, tmp_path, *overrides))
    assert found is not None
    assert "1 of 2 words cannot be written" in found
    assert "'maybe' 1×;" in found


def test_a_dev_set_without_words_has_no_rate(corpus: Path, tmp_path: Path) -> None:
    """Neither in the log nor in the model file."""
    with_texts(corpus, ["", " ", ""])
    out = tmp_path / "out"
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
