"""The plan of a training: what the rules choose for corpora of each kind."""

from pathlib import Path

import pytest

from asrkit.config import parse_config
from asrkit.config.locate import configurations
from asrkit.data.checks.facts import Facts
from asrkit.data.manifest import Utterance
from asrkit.model_file import load_model
from asrkit.pretrained import ready_models
from asrkit.training.planning import BASES, Corpus, Measures, planned, similar, writes

SENTENCES = ["the cat sat on the mat", "how do you do", "it rains in spring", "who goes there"]


def facts(texts: list[str], hours: float, count: int = 0) -> list[Facts]:
    """Utterances of these texts, in turn, with a length that makes these hours together."""
    count = count or min(3000, round(hours * 3600 / 4))
    return [
        Facts("m", i, Utterance(id=str(i), audio="a", text=texts[i % len(texts)],
                                duration=hours * 3600 / count))
        for i in range(count)
    ]  # fmt: skip


def measures(texts: list[str], hours: float, dev: list[str] | None = None, band: int = 0,
             count: int = 0) -> Measures:  # fmt: skip
    sets = facts(texts, hours, count), facts(dev or texts, 0.1 * hours, 20)
    return Measures(Corpus(*sets, ("t.jsonl", "d.jsonl"), band, False))


@pytest.mark.parametrize(
    ("texts", "hours", "dev", "expected"),
    [
        (["yes", "no"], 0.3, None, {"text.tokenizer": "words", "training.epochs": 17}),
        (["yes", "no"], 0.3, ["maybe"], {"text.tokenizer": "characters", "training.epochs": 34}),
        ([f"w{i}" for i in range(200)], 0.5, None, {"text.tokenizer": "characters"}),  # too rare
        (SENTENCES, 4.5, ["a new word"], {"text.tokenizer": "unigram", "text.vocab_size": 128}),
        (SENTENCES, 12, ["new"], {"text.vocab_size": 256, "model.num_layers": 6}),
        (SENTENCES, 150, ["new"], {"text.vocab_size": 300}),
        (["".join(map(chr, range(0x4E00, 0x5000)))], 5, ["one"], {"text.tokenizer": "characters"}),
    ],
)
def test_rules(texts: list[str], hours: float, dev: list[str] | None, expected: dict) -> None:
    values, reasons = planned(measures(texts, hours, dev), None, "exp/x")
    for key, value in expected.items():
        section, name = key.split(".")
        assert values[section][name] == value, key
        assert reasons[key]
    assert ("vocab_size" in values["text"]) == (values["text"]["tokenizer"] == "unigram")
    config = parse_config(values)
    assert config.data.recipe is config.data.licence is None
    assert config.model.num_mels == 80


@pytest.mark.parametrize(
    ("texts", "written"),
    [
        (["Thank you, Bob.", "goodbye"], True),
        (["THANK YOU, BOB."], False),
        (["thank you, bob."], False),
        (["Thank you Bob"], False),
        (["thank you bob"] * 60 + ["Thank you, Bob."], False),
    ],
)
def test_texts_with_many_capitals_and_marks_are_written(texts: list[str], written: bool) -> None:
    values, reasons = planned(measures(texts, 0.3, ["new"]), None, "exp/x")
    assert parse_config(values).text.written == ("text.written" in reasons) == written


def test_narrow_short_and_few_recordings() -> None:
    values, _ = planned(measures(["yes"], 0.3, band=4000, count=2000), None, "exp/x")
    assert values["model"]["frontend"] == {"kind": "kaldi", "high_frequency": 4000}
    assert (values["model"]["num_mels"], values["augmentation"]["spec_frequency_bins"]) == (60, 20)
    assert values["augmentation"]["spec_time_masks"] == 2
    assert values["data"]["max_batch_seconds"] == 5
    parse_config(values)
    values, reasons = planned(measures(["yes"], 0.05), None, "exp/x")
    assert values["augmentation"]["spec_probability"] == 0
    assert "augmentation.spec_time_masks" not in reasons
    parse_config(values)


def test_a_ready_model() -> None:
    model = load_model(ready_models()["small-en-alnum"])
    assert writes(model, measures(["ONE TWO", "a b"], 0.3))
    assert not writes(model, measures(SENTENCES, 0.3))
    values, reasons = planned(measures(["one"], 0.3, band=4000), "small-en-alnum", "exp/x")
    assert values["training"]["start_from"] == "small-en-alnum"
    assert values["training"]["epochs"] == 10
    assert values["data"]["max_batch_seconds"] == 24
    assert values["augmentation"]["spec_frequency_bins"] == 10
    assert not {"model", "text"} & values.keys()
    assert not [key for key in reasons if key.startswith(("model", "text"))]


def test_similar_corpora() -> None:
    found, alike = similar(measures(["one", "two", "three"], 0.3))
    assert alike
    assert [(each.words, each.labels) for each in found] == [(10, "words"), (10, "characters")]
    _, alike = similar(measures(SENTENCES, 40))
    assert not alike


def test_each_base_exists() -> None:
    assert {name for _, name in BASES} <= configurations().keys()
    assert Path("docs/training.md").is_file()
