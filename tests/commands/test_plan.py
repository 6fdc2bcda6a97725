"""`asrkit plan`: the file that it writes trains; its rules are the table of docs/training.md."""

import re
from collections import Counter
from pathlib import Path

import pytest
import torch

from asrkit.build_network import build_model
from asrkit.commands.plan import ROWS, planned, tokenizer_of
from asrkit.config.locate import configurations
from asrkit.config.schema import load_config, parse_config
from tests.conftest import PROJECT, write_manifest
from tests.running import run

Output = pytest.CaptureFixture[str]


def test_a_plan(corpus: Path, tmp_path: Path, capsys: Output) -> None:
    output = tmp_path / "mine.yaml"
    sets = corpus / "train.jsonl", corpus / "dev.jsonl"
    arguments = (*sets, "--output", output)
    assert run("plan", *arguments) == 0
    config = load_config(output)
    assert config.data.train == [str(sets[0])]
    assert config.training.output_dir == "exp/mine"
    shown = capsys.readouterr().out
    assert "begins with conf/conformer.yaml, for 0.00 h and 2 words" in shown
    seconds = sum(1.0 + 0.2 * (i % 4) for i in range(12))
    hours = seconds * sum(1 / factor for factor in (0.9, 1.0, 1.1)) / 3600
    epochs = round(56 / (seconds / 3600) ** 0.5 / 3)
    assert re.search(rf"{hours * epochs:.1f} h of audio in all epochs: about .* on one CPU", shown)
    assert f"asrkit train --config {output}" in shown


def test_mistakes(corpus: Path, tmp_path: Path, capsys: Output) -> None:
    train, output = corpus / "train.jsonl", tmp_path / "mine.yaml"
    lost = write_manifest(tmp_path / "x.jsonl", {"id": "a", "audio": "a.wav", "text": "no"})
    other = write_manifest(tmp_path / "y.jsonl", {"id": "a", "text": "no"})
    for dev, written, told in (
        (train, output, "dev must have other recordings than train"),
        (corpus / "dev.jsonl", train, "is read and cannot be written"),
        (tmp_path / "no.jsonl", output, "no.jsonl does not exist"),
        (lost, output, "has no readable recording with a text"),
        (other, output, "y.jsonl:1: 'audio': field required"),
    ):
        assert run("plan", train, dev, "--output", written) == 2
        assert told in capsys.readouterr().err
    assert not output.exists()


SENTENCES = ["the cat sat on the mat", "how do you do", "it rains in spring", "who goes there"]
CHOSEN = {"data.train": "t", "data.dev": "d", "training.output_dir": "exp/x"}


def values_of(texts: list[str], hours: float, dev: list[str] | None = None) -> dict:
    row = next(row for row in ROWS if hours < row.hours)
    words = (Counter(" ".join(each).split()) for each in (texts, dev or texts))
    return planned(row, tokenizer_of(row, *words), CHOSEN)


@pytest.mark.parametrize(
    ("texts", "hours", "dev", "expected"),
    [
        (["yes", "no"] * 99, 0.3, None, {"text.tokenizer": "words", "training.epochs": "auto"}),
        (["yes", "no"] * 99, 0.3, ["maybe"], {"text.tokenizer": "characters"}),
        ([f"w{i}" for i in range(200)], 0.5, None, {"text.tokenizer": "characters"}),  # too rare
        (SENTENCES, 3, ["new"], {"text.tokenizer": "characters", "training.epochs": "auto"}),
        (SENTENCES, 4.5, ["a new word"], {"text.tokenizer": "unigram", "text.vocab_size": 128}),
        (SENTENCES, 12, ["new"], {"text.vocab_size": 256, "model.num_layers": 6}),
        (SENTENCES, 150, ["new"], {"text.vocab_size": 300}),
        (SENTENCES, 1500, ["new"], {"text.vocab_size": 500, "model.dim": 512}),
        (["".join(map(chr, range(0x4E00, 0x5000)))], 5, ["one"], {"text.tokenizer": "characters"}),
    ],
)
def test_rules(texts: list[str], hours: float, dev: list[str] | None, expected: dict) -> None:
    values = values_of(texts, hours, dev)
    for key, value in expected.items():
        section, name = key.split(".")
        assert values[section][name] == value, key
    assert ("vocab_size" in values["text"]) == (values["text"]["tokenizer"] == "unigram")
    config = parse_config(values)
    assert config.data.recipe is config.data.licence is None
    assert config.model.num_mels == 80


def test_the_rows_are_those_of_the_page() -> None:
    page = (PROJECT / "docs" / "training.md").read_text("utf-8")
    table = page.partition("| recordings | begin with |")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(table) == len(ROWS)
    assert {row.base for row in ROWS} <= configurations().keys()
    for line, row in zip(table, ROWS, strict=True):
        hours, base, labels, model, passes, speed = line.split(" | ")[:6]
        assert hours.strip("| ") == (f"up to {row.hours:g} h" if row is not ROWS[-1] else "more")
        assert base == f"`{row.base}`"
        assert (
            labels == ("`characters`", f"`unigram`, {row.vocab_size}")[row.vocab_size is not None]
        )
        config = parse_config(values_of(SENTENCES, min(row.hours - 0.5, 9999), ["new"]))
        assert passes == str(config.training.epochs)
        with torch.device("meta"):
            size = sum(
                p.numel() for p in build_model(config.model, row.vocab_size or 256).parameters()
            )
        assert f"({size / 1e6:.0f} M)" in model
        assert speed == f"{row.speed:g} on {row.machine}"
