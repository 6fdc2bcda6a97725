"""The study of position encodings: longer audio, what is left to do, and what may be claimed."""

import json
import subprocess
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asrkit.build import build_model, train_tokenizer
from asrkit.config import load_config
from asrkit.data.manifest import read_manifest
from asrkit.errors import UserError
from asrkit.model import Context, EncoderStep
from asrkit.model.positions import KINDS
from asrkit.model_file import ModelFile
from tests.conftest import PROJECT, write_config
from tools.studies import jobs
from tools.studies.jobs import run_all
from tools.studies.positions import costs
from tools.studies.positions.__main__ import main, plan
from tools.studies.positions.chart import separated
from tools.studies.positions.compare import Score, compare, gap_of_seeds, pooled_deviation
from tools.studies.positions.corpora import CONFIG, CORPORA, Corpus, prepare
from tools.studies.positions.lengths import TIMES, Utterance, join, split
from tools.studies.positions.measure import CONTEXTS, LONG_CONTEXTS, load, measures_of
from tools.studies.positions.report import write_report
from tools.studies.positions.trainings import Training


@pytest.fixture(autouse=True)
def _project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)


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


def training(folder: Path, kind: str = "none", seed: int = 0, **more: Any) -> Training:
    return Training(CORPORA["digits"], True, kind, seed, folder, **more)


def finish(one: Training, measured: bool = True) -> Training:
    one.folder.mkdir(parents=True)
    one.model.touch()
    if measured:
        one.measures.write_text("{}")
    return one


def test_only_what_is_left_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh, trained = training(tmp_path), finish(training(tmp_path, seed=1), measured=False)
    done = finish(training(tmp_path, seed=2))
    assert [step[0] for step in fresh.steps()] == [
        "asrkit.train",
        "tools.studies.positions.measure",
    ]
    assert [step[0] for step in trained.steps()] == ["tools.studies.positions.measure"]
    assert done.steps() == []
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("done again"))
    assert run_all([done], at_once=2) == []


def test_a_failure_is_named_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    bad, good = training(tmp_path, "rotary"), training(tmp_path, "none")
    ran = []

    def run(command: list[str], stdout: Any, **_: Any) -> subprocess.CompletedProcess[str]:
        ran.append(command[2])
        failing = "model.position.kind=rotary" in command
        stdout.write(b"first line\n" * 20 + b"it broke here\n")
        return subprocess.CompletedProcess(command, int(failing))

    monkeypatch.setattr(jobs.subprocess, "run", run)
    assert run_all([bad, good], at_once=1) == [bad]
    assert ran == ["asrkit.train", "asrkit.train", "tools.studies.positions.measure"]
    shown = capsys.readouterr().err
    assert "digits-quick/rotary-0 failed" in shown
    assert "it broke here" in shown
    assert shown.count("first line") < 20


def test_trainings_with_other_settings_are_not_mixed(tmp_path: Path) -> None:
    one = training(tmp_path)
    one.check()  # nothing there yet
    one.folder.mkdir(parents=True)
    config = load_config(CONFIG, one.overrides).model_dump(mode="json")
    (one.folder / "config.yaml").write_text(json.dumps(config))
    one.check()
    with pytest.raises(UserError, match=r"digits-quick/none-0 holds a training with other setting"):
        training(tmp_path, more=("training.epochs=7",)).check()


@pytest.mark.parametrize("name", CORPORA)
@pytest.mark.parametrize("quick", [True, False])
def test_every_training_is_configured(tmp_path: Path, name: str, quick: bool) -> None:
    for kind in KINDS:
        one = Training(CORPORA[name], quick, kind, 3, tmp_path)
        config = load_config(CONFIG, one.overrides)
        assert config.model.position.kind == kind
        assert config.training.seed == 3
        assert config.data.recipe is None  # made once, before: never by trainings side by side
        assert config.data.train == f"data/{name}/train.jsonl"
        assert CORPORA[name].held_out != "train"


def test_seeds_of_each_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = Namespace(quick=False, kinds=["none", "t5"], output=tmp_path, overrides=[])
    planned = [(t.corpus.name, t.seed, t.kind) for t in plan(options, {"digits": 2, "an4": 1})]
    assert planned == [
        ("digits", 0, "none"), ("digits", 0, "t5"), ("digits", 1, "none"), ("digits", 1, "t5"),
        ("an4", 0, "none"), ("an4", 0, "t5"),
    ]  # fmt: skip
    assert main(["--corpora", "digits", "an4", "--seeds", "1", "2", "3"]) == 2
    assert "--seeds takes one number, or 2 for digits, an4" in capsys.readouterr().err


def test_missing_data_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    corpus = Corpus("an4", "dev", [], [], tmp_path / "nowhere")
    assert not corpus.is_here()
    with pytest.raises(UserError, match=r"recipes/an4/prepare.py --output-dir data/an4 --download"):
        prepare(corpus)


def test_elsewhere_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--quick"]) == 2
    assert "run from the project's folder" in capsys.readouterr().err


def test_measures_of_a_model(tmp_path: Path, corpus: Path) -> None:
    config = load_config(write_config(tmp_path / "c.yaml", corpus, tmp_path))
    tokenizer = train_tokenizer(config.text, ["yes no"])
    model = build_model(config.model, tokenizer.vocab_size).eval()
    held_out = [
        Utterance(load(u.audio, 0.0, None), u.text or "")
        for u in read_manifest(corpus / "dev.jsonl", [])
    ]
    measures = measures_of(ModelFile(model, tokenizer, config, {}), held_out)
    assert measures["longest_seconds"] == pytest.approx(1.6, abs=0.01)
    assert measures["contexts"].keys() == CONTEXTS.keys()
    assert [length["times"] for length in measures["lengths"]] == list(TIMES)
    for errors in [*measures["contexts"].values()] + [
        length["contexts"][name] for length in measures["lengths"] for name in LONG_CONTEXTS
    ]:
        assert sum(errors["words"]["units"]) == 5
        assert sum(errors["letters"]["units"]) == len("yesnononoyes")
    assert json.loads(json.dumps(measures)) == measures


def test_costs_of_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ROUNDS", 2), ("STREAM_SECONDS", 2.0), ("MEMORY_SECONDS", 2.0)):
        monkeypatch.setattr(costs, name, value)
    small = ["model.num_layers=1", "training.intermediate_layers=[]"]
    encoders = {kind: costs.encoder_of(kind, small) for kind in ("none", "relative")}
    steps = {
        kind: EncoderStep(encoder, Context(16, 64)).eval() for kind, encoder in encoders.items()
    }
    times = costs.step_times(steps)
    assert all(0 < low <= median <= high for median, low, high in times.values())
    assert costs.table_bytes(steps["none"]) < costs.table_bytes(steps["relative"])
    assert costs.num_parameters(encoders["none"]) < costs.num_parameters(encoders["relative"])
    assert costs.peak_of_pass("none", small) >= 0


def test_pooled_deviation() -> None:
    assert pooled_deviation([[1.0, 3.0], [10.0, 12.0], [5.0]]) == pytest.approx(2**0.5)
    assert pooled_deviation([[1.0], [2.0]]) is None


def seeds(*rates: int) -> list[Score]:
    """Models with these percentages of errors, a word a recording."""
    return [Score([1] * rate + [0] * (100 - rate), [1] * 100) for rate in rates]


def test_comparison_of_several_seeds() -> None:
    """Seeds a tenth apart: kinds twice apart are told apart, kinds a fifth apart are not."""
    found = compare({"far": seeds(380, 420), "best": seeds(190, 210), "near": seeds(228, 252)})
    assert found.best == "best"
    assert found.tied == ["near"]
    assert found.within == pytest.approx(0.1 / 2**0.5, rel=0.01)
    assert found.between == pytest.approx(np.std(np.log([380, 190, 228]), ddof=1), rel=0.01)


@pytest.mark.parametrize(
    ("counts", "table"), [([3] * 14, 5.18), ([5] * 3, 3.77), ([4] * 2, 3.46), ([60] * 4, 3.66)]
)
def test_the_gap_is_that_of_tukeys_tables(counts: list[int], table: float) -> None:
    assert gap_of_seeds(counts) == pytest.approx(table / 2**0.5, rel=0.02)


def test_kinds_that_are_alike_are_seldom_told_apart() -> None:
    """Of 100 studies of 14 like kinds in three seeds about 5 % claim anything; with two standard
    errors for a limit, the control, most would."""
    draw, claims, naive = np.random.default_rng(1), 0, 0
    for _ in range(100):
        rates = 2000 * np.exp(0.1 * draw.standard_normal((14, 3)))
        kinds = {str(k): seeds(*map(int, row)) for k, row in enumerate(rates)}
        found = compare(kinds)
        claims += len(found.tied) < 13
        means = sorted(np.log(rates).mean(1))
        assert found.within is not None
        naive += means[-1] - means[0] > 2 * found.within * (2 / 3) ** 0.5
    assert claims < 12
    assert naive > 50


def test_comparison_of_one_seed() -> None:
    """The recordings of one speaker, drawn again, move all kinds alike: no difference there."""
    hard = [0] * 50 + [9] * 50
    scores = {
        "best": [Score(hard, [10] * 100)],
        "near": [Score([*hard[:-1], 10], [10] * 100)],
        "far": [Score([min(10, n + 3) for n in hard], [10] * 100)],
    }
    found = compare(scores)
    assert (found.best, found.tied, found.within) == ("best", ["near"], None)
    few = compare({kind: [Score(s.errors[40:60], s.units[40:60])] for kind, [s] in scores.items()})
    assert not few.decided
    assert few.tied == ["near", "far"]


def test_labels_keep_their_distance() -> None:
    placed = separated([0.1, 0.5, 0.5, 0.97, 0.98, 1.0], 0.05)
    assert np.diff(placed).min() > 0.05 - 1e-9
    assert placed[0] == 0.1
    assert max(placed) <= 1.0


def made_up(kind: str, seed: int, wrong: int) -> dict[str, Any]:
    """Measures with `wrong` errors in a hundred, more on longer audio."""

    def errors(extra: int) -> dict[str, Any]:
        part = {"errors": [wrong + extra, wrong + extra], "units": [100, 100]}
        return {"words": part, "letters": part}

    return {
        "kind": kind, "seed": seed, "parameters": 1_000_000, "longest_seconds": 6.0,
        "training": {"wall_seconds": 90},
        "contexts": {name: errors(0) for name in CONTEXTS},
        "lengths": [
            {"times": times, "seconds": 6.0 * times,
             "contexts": {name: errors(times) for name in LONG_CONTEXTS}}
            for times in TIMES
        ],
    }  # fmt: skip


def test_report(tmp_path: Path) -> None:
    wrong = {"none": 30, "rotary": 4, "t5": 5}
    measures = [made_up(kind, seed, wrong[kind] + seed) for kind in wrong for seed in (0, 1)]
    cost = {"position_parameters": 1234, "table_bytes": 2500, "memory_megabytes": 71.6,
            "milliseconds": [2.0, 1.5, 3.0]}  # fmt: skip
    path = tmp_path / "REPORT.md"
    write_report(path, {"CPU": "abacus"}, {"digits": measures}, {"rotary": cost}, ["digits/flow-0"])
    text = path.read_text()
    assert "- CPU: abacus" in text
    assert "**Without digits/flow-0: failed.**" in text
    row = next(line for line in text.splitlines() if line.startswith("| rotary"))
    assert "| 4.50 (4.00–5.00) |" in row
    assert "| 14.50 (14.00–15.00) |" in row  # at ten times the length
    assert row.endswith("| 1.000 | 1,234 | 2.00 (1.50–3.00) | 72 | 2.5 |")
    assert "WER full**: the kinds' rates spread by 187 %, the seeds of one kind by 13 %" in text
    assert "Lowest: rotary; not told apart from it: t5." in text
    assert "6.0 s. Every length holds all 200 words." in text
    assert (tmp_path / "report-digits.png").read_bytes().startswith(b"\x89PNG")


def test_report_of_one_seed_and_one_kind(tmp_path: Path) -> None:
    path = tmp_path / "REPORT.md"
    write_report(path, {}, {"digits": [made_up("none", 0, 0)], "an4": []}, {}, [])
    assert "One kind alone" in path.read_text()
    two = [made_up("none", 0, 50), made_up("rotary", 0, 2)]
    write_report(path, {}, {"digits": two}, {}, [])
    assert "One seed and too few recordings to tell anything apart." in path.read_text()
