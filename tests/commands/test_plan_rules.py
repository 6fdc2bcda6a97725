"""The plan of a training: what hours and texts choose, from the table of docs/training.md."""

from collections import Counter

import pytest
import torch

from asrkit.build_network import build_model
from asrkit.commands.plan import ROWS, planned, tokenizer_of
from asrkit.config.locate import configurations
from asrkit.config.schema import parse_config
from tests.conftest import PROJECT

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
