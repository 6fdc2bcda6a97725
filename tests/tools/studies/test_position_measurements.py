"""The two measurements beside the ablation of position encodings: longer audio, and costs."""

from pathlib import Path

import numpy as np
import pytest

from asrkit.build import build_model, train_tokenizer
from asrkit.config import load_config
from asrkit.model.positions import KINDS
from asrkit.model_file import ModelFile, save_model
from tests.conftest import PROJECT, write_config
from tools.studies.ablations.__main__ import read_study
from tools.studies.positions import costs, lengths
from tools.studies.positions.lengths import TIMES, Utterance, join, split


def utterances(count: int = 60) -> list[Utterance]:
    """Recordings of different lengths, each of which can be found again by its samples."""
    sizes = np.random.default_rng(0).integers(50, 200, count)
    return [Utterance(np.full(size, i, np.float32), f"t{i}") for i, size in enumerate(sizes)]


@pytest.mark.parametrize("times", TIMES)
def test_joined_recordings_hold_everything_in_one_order(times: int) -> None:
    given = utterances()
    rows = join(given, 200.0 * times)
    order = " ".join(row.text for row in rows).split()
    assert sorted(order) == sorted(u.text for u in given)
    assert order == " ".join(row.text for row in join(given, 1000.0)).split()
    assert order != [u.text for u in given]
    for row in rows:
        parts = [given[int(text[1:])].samples for text in row.text.split()]
        np.testing.assert_array_equal(row.samples, np.concatenate(parts))
        assert abs(len(row.samples) - 200 * times) < 200  # an utterance more or less
    mean = sum(len(row.samples) for row in rows) / len(rows)
    assert mean == pytest.approx(200 * times, rel=0.25)


def test_joining_is_the_same_every_time() -> None:
    assert [r.text for r in join(utterances(), 500)] == [r.text for r in join(utterances(), 500)]


def test_what_is_too_short_or_too_long_is_one_group() -> None:
    assert split([3, 4], 100.0) == [[0, 1]]
    assert split([100, 1, 1], 10.0) == [[0], [1, 2]]  # groups without anything are left out


@pytest.mark.parametrize("path", sorted(PROJECT.glob("tools/studies/*/positions.yaml")), ids=str)
def test_the_study_has_every_kind(path: Path) -> None:
    assert read_study(path).rows == {
        kind: [f"model.position.kind={kind}"] if kind != "relative" else [] for kind in KINDS
    }


def test_lengths(tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = load_config(write_config(tmp_path / "c.yaml", corpus, tmp_path))
    tokenizer = train_tokenizer(config.text, ["yes no"])
    model = build_model(config.model, tokenizer.vocab_size).eval()
    assert lengths.longest_heard(config) == pytest.approx(1.6, abs=0.01)
    path = tmp_path / "m.safetensors"
    save_model(path, ModelFile(model, tokenizer, config, {}))
    assert lengths.main(["--manifest", str(corpus / "dev.jsonl"), str(path)]) == 0
    titles, _, row = capsys.readouterr().out.splitlines()
    assert titles.startswith("| model | full, 1× | full, 2× |")
    assert row.count(" % |") == 2 * len(TIMES)


def test_costs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(PROJECT)
    for name, value in (("ROUNDS", 1), ("STREAM_SECONDS", 2.0), ("MEMORY_SECONDS", 2.0)):
        monkeypatch.setattr(costs, name, value)
    monkeypatch.setattr(costs, "memory_of", costs.peak_of_pass)  # no process of its own
    small = ["model.num_layers=1", "training.intermediate_layers=[]"]
    assert costs.main([*small, "--kinds", "none", "relative"]) == 0
    *_, none, relative = (line.split(" | ") for line in capsys.readouterr().out.splitlines())
    assert (none[0], none[1], relative[0]) == ("| none", "0", "| relative")
    assert int(relative[1].replace(",", "")) > 0
    assert float(none[4].strip(" |")) < float(relative[4].strip(" |"))
    assert all(float(row[2].split()[0]) > 0 for row in (none, relative))
