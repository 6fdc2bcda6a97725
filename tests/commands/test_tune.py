"""`asrkit tune`: what it prints of a pair is what `asrkit evaluate` says of it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asrkit.commands.tune import BONUSES, WEIGHTS
from asrkit.model_file import save_model
from tests.conftest import feats_of, fitted, speech, write_manifest
from tests.laws.test_export import file_of
from tests.running import LETTERS, UNSPACED, run, talkative_model

Shown = Callable[..., str]
BEAM = ["--search", "prefix_beam", "--beam", "10"]
STRONG = ["--lm-weight", "3", "--word-bonus", "1"]


class Setting:
    """A model, a language model, and a manifest whose text is recognised with some options."""

    def __init__(self, model: Path, wav: Path, shown: Shown, labels: str = LETTERS) -> None:
        self.wav, self.shown, self.dev = wav, shown, wav.with_name("dev.jsonl")
        self.model, self.lm = ["--model", model, "--chunk-ms", "320"], wav.with_name("lm.arpa")
        texts = "ab ba\nba ab ba\nab\n".translate(str.maketrans(LETTERS, labels))
        wav.with_name("texts.txt").write_text(texts, encoding="utf-8")
        shown("ngram", "--model", model, "--output", self.lm, wav.with_name("texts.txt"))

    def refer_to(self, *options: Any) -> None:
        """Make the text that decoding finds with the options the reference."""
        text = self.shown("decode", *self.model, *options, self.wav).strip().rpartition("\t")[2]
        assert len(text) > 2
        write_manifest(self.dev, {"id": "x", "audio": self.wav.name, "text": text})

    def tune(self, *options: Any) -> str:
        return self.shown("tune", *self.model, *options, self.dev, "--lm", self.lm)


@pytest.fixture
def setting(model: Path, wav: Path, shown: Shown) -> Setting:
    made = Setting(model, wav, shown)
    made.refer_to(*BEAM, "--lm", made.lm, *STRONG)
    return made


def rates_of(table: str) -> dict[str, str]:
    """Return the rates in percent of tune's rows by their first cells."""
    return {row[:16].strip(): row[16:].split("%")[0].strip() for row in table.splitlines()[1:-1]}


@pytest.mark.parametrize(("labels", "name"), [(LETTERS, "WER"), (UNSPACED, "CER")])
def test_finds_a_pair_that_helps(
    labels: str, name: str, model: Path, wav: Path, shown: Shown
) -> None:
    """Also in a script without spaces, by the units that the language model has."""
    setting = Setting(talkative_model(model, labels=labels), wav, shown, labels)
    setting.refer_to(*BEAM, "--lm", setting.lm, *STRONG)
    table = setting.tune(*BEAM)
    assert table.split()[2] == name
    rates = {cells: float(rate) for cells, rate in rates_of(table).items()}
    best = re.fullmatch(r"best: --lm-weight (\S+) --word-bonus (\S+)", table.splitlines()[-1])
    assert best is not None
    weight, bonus = best.groups()
    assert rates[f"{weight:<8} {bonus}"] == min(rates.values()) < rates["without"]
    assert len(rates) == 1 + len(WEIGHTS) * len(BONUSES)
    chosen = ["--lm", setting.lm, "--lm-weight", weight, "--word-bonus", bonus]
    for options, cells in (([], "without"), (chosen, f"{weight:<8} {bonus}")):
        scored = shown("evaluate", *setting.model, *BEAM, *options, setting.dev)
        assert f"{rates[cells]:.2f} %" in scored


def test_a_transducer_has_the_rates_of_evaluate(model: Path, wav: Path, shown: Shown) -> None:
    head = {"kind": "transducer", "predictor_dim": 16, "joint_dim": 24, "max_symbols": 1}
    file = file_of(head=head)
    fitted(file.model, feats_of(speech(2.0)))
    save_model(model, file)
    setting, beam = Setting(model, wav, shown), ["--search", "prefix_beam", "--beam", "2"]
    setting.refer_to(*beam)
    rates = rates_of(setting.tune(*beam, "--lm-weight", "0.7"))  # one weight, all bonuses
    assert len(rates) == 1 + len(BONUSES)
    assert float(rates["without"]) == 0.0
    chosen = ["--lm", setting.lm, "--lm-weight", "0.7", "--word-bonus", "0"]
    scored = shown("evaluate", *setting.model, *beam, *chosen, setting.dev)
    assert f"{rates['0.7      0']} %" in scored


def test_mistakes(setting: Setting, refused: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    tune = ["tune", *setting.model, setting.dev]
    assert "tuning needs a language model: --lm FILE" in refused(*tune)
    tune += ["--lm", setting.lm]
    assert "search greedy takes no language model" in refused(*tune, "--search", "greedy")
    write_manifest(setting.dev, {"id": "x", "audio": "x.wav", "text": ""})
    assert "the texts have no words" in refused(*tune)
    write_manifest(setting.dev, {"id": "x", "audio": "none.wav", "text": "a"})
    assert run("tune", *tune[1:]) == 2
    assert "no utterance could be read" in capsys.readouterr().err
