"""Ablations: what is left to do, the table, and the interval of a gain."""

import json
from pathlib import Path

import pytest

from asrkit.errors import UserError
from recipes.corpus import read_prepared
from tests.conftest import PROJECT, speech, write_manifest, write_wav
from tools.studies.ablations import __main__ as ablations
from tools.studies.ablations.__main__ import Study, Trial, main, read_all, read_study
from tools.studies.ablations.folds import write_folds
from tools.studies.ablations.report import Row, report

STUDY = Study(
    config=Path("conf/an4.yaml"),
    held_out=Path("data/an4/dev.jsonl"),
    chunk_ms="full,640",
    common=["model.dim=96"],
    rows={"base": [], "two views": ["training.views=same"]},
)


def scores(errors: list[int], rate: float) -> dict[str, object]:
    one = {"words": {"rate": rate}, "errors": {str(i): e for i, e in enumerate(errors)}}
    return {"contexts": {"full": one, "640 ms": one}, "training": {"wall_seconds": 90}}


def test_only_what_is_left_is_done(tmp_path: Path) -> None:
    trial = Trial(STUDY, "two views", 1, tmp_path)
    train, score = trial.steps()
    assert train[:3] == ["asrkit.train", "--config", "conf/an4.yaml"]
    assert train[-5:-2] == ["training.views=same", "training.seed=1",
                            f"training.output_dir={tmp_path}/two-views-1"]  # fmt: skip
    assert score[0] == "asrkit.evaluate"
    trial.folder.mkdir()
    (trial.folder / "model.safetensors").touch()
    assert trial.steps() == [score]
    trial.scores.touch()
    assert trial.steps() == []


def test_other_ways_to_score_are_columns(tmp_path: Path) -> None:
    ways = {"beam": ["--chunk-ms", "640", "--search", "prefix_beam"]}
    trial = Trial(STUDY.model_copy(update={"scores": ways}), "base", 0, tmp_path)
    trial.folder.mkdir()
    (trial.folder / "model.safetensors").touch()
    greedy, beam = trial.steps()
    assert "prefix_beam" not in greedy
    assert beam[3:7] == ["--chunk-ms", "640", "--search", "prefix_beam"]
    trial.scores.write_text(json.dumps(scores([1, 0], 5.0)))
    assert trial.steps() == [beam]
    assert not read_all([trial])
    Path(beam[beam.index("--output") + 1]).write_text(json.dumps(scores([0, 0], 0.0)))
    (found,) = read_all([trial])
    rates = {name: each["words"]["rate"] for name, each in found["contexts"].items()}
    assert rates == {"full": 5.0, "640 ms": 5.0, "full, beam": 0.0, "640 ms, beam": 0.0}
    other = {"beam": ["--chunk-ms", "full"]}
    changed = trial._replace(study=STUDY.model_copy(update={"scores": other}))
    assert len(changed.steps()) == 1


def test_the_table() -> None:
    base = Row("base", [], [scores([2, 0], 10.0), scores([1, 1], 12.0)])
    better = Row("two views", ["training.views=same"], [scores([1, 0], 5.0)])
    failed = Row("words", ["text.tokenizer=words"], [])
    lines = report({"commit": "abc"}, [base, better, failed], "base").splitlines()
    assert "- commit: abc" in lines
    assert "| base | 2 | 11.0 (10.0–12.0) | 11.0 (10.0–12.0) |  | 2 |" in lines
    row = next(line for line in lines if line.startswith("| two views"))
    assert "`training.views=same` | 1 | 5.0 | 5.0 | -50 (" in row
    assert "| words `text.tokenizer=words` | failed |  |  |  |  |" in lines
    assert all(line.count("|") == 7 for line in lines if line.startswith("|"))


def test_without_its_base_nothing_is_compared() -> None:
    """No other row takes its place."""
    rows = [Row("base", [], [])]
    rows += [Row(name, [], [scores([1, 0], 5.0)]) for name in ("two views", "words")]
    lines = report({}, rows, "base").splitlines()
    for name in ("two views", "words"):
        assert f"| {name} | 1 | 5.0 | 5.0 |  | 2 |" in lines


def test_other_scores_and_other_studies_are_kept_apart(tmp_path: Path) -> None:
    trial = Trial(STUDY, "base", 0, tmp_path)
    trial.folder.mkdir()
    (trial.folder / "model.safetensors").touch()
    trial.scores.touch()
    assert not trial.steps()
    for change in ({"chunk_ms": "full"}, {"held_out": Path("data/fsdd/dev.jsonl")}):
        (score,) = trial._replace(study=STUDY.model_copy(update=change)).steps()
        assert score[0] == "asrkit.evaluate"


def test_studies_have_folders_of_their_own_and_nothing_is_reported_of_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both studies of an4 name a row base; all trainings fail."""
    folders = []

    def fail(trials: list[Trial], at_once: int) -> list[Trial]:
        folders.append({trial.folder for trial in trials})
        return trials

    monkeypatch.chdir(PROJECT)
    monkeypatch.setattr(ablations, "run_all", fail)
    for study in ("ablations", "ablations_going_on"):
        options = ["--output", str(tmp_path), "--report", str(tmp_path / "report.md")]
        assert main([f"tools/studies/an4/{study}.yaml", "--rows", "base", *options]) == 1
    assert not folders[0] & folders[1]
    assert not (tmp_path / "report.md").exists()


def test_the_report_is_beside_the_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study that is repeated leaves the source as it was."""
    context = {"words": {"rate": 1.0}, "errors": {"a": 1}}
    scores = {"contexts": {"full": context}, "training": {"wall_seconds": 60}}

    def train(trials: list[Trial], at_once: int) -> list[Trial]:
        for trial in trials:
            trial.folder.mkdir(parents=True)
            for _, path, _ in trial.measured:
                path.write_text(json.dumps(scores))
        return []

    monkeypatch.chdir(PROJECT)
    monkeypatch.setattr(ablations, "run_all", train)
    study = "tools/studies/an4/ablations.yaml"
    assert main([study, "--rows", "base", "--seeds", "1", "--output", str(tmp_path)]) == 0
    assert (tmp_path / "an4" / "ablations" / "report.md").read_text().startswith("# What pays")
    assert not Path(study).with_suffix(".md").exists()


def test_every_speaker_is_left_out_once(tmp_path: Path) -> None:
    speakers = {"a": 3, "b": 2, "c": 2, "d": 1}
    rows = [(f"{name}{i}", name) for name, count in speakers.items() for i in range(count)]
    parts = {"train": rows[:6], "dev": rows[6:]}
    samples = speech(0.5)
    for split, part in parts.items():
        for id, _ in part:
            write_wav(tmp_path / f"{id}.wav", samples)
        each = [{"id": id, "audio": f"{id}.wav", "duration": 0.5, "text": "yes", "speaker": name}
                for id, name in part]  # fmt: skip
        write_manifest(tmp_path / f"{split}.jsonl", *each)
    folds = write_folds(tmp_path, tmp_path / "folds", 2)
    held_out = []
    for fold in folds:
        train, dev = (read_prepared(fold)[split] for split in ("train", "dev"))
        assert len(train) + len(dev) == len(rows)
        assert not {row["speaker"] for row in train} & {row["speaker"] for row in dev}
        held_out += [row["id"] for row in dev]
    assert sorted(held_out) == sorted(id for id, _ in rows)
    assert [len(read_prepared(fold)["dev"]) for fold in folds] == [4, 4]
    with pytest.raises(UserError, match="--folds 5: there are 4 speakers"):
        write_folds(tmp_path, tmp_path / "folds", 5)
    with pytest.raises(UserError, match="is not prepared"):
        write_folds(tmp_path / "none", tmp_path / "folds", 2)


def test_the_folds_of_a_seed_are_one_score(tmp_path: Path) -> None:
    """Three errors of 4 words and one of 12 are 25 %, not the mean of both rates."""
    trials = [Trial(STUDY, "base", seed, tmp_path, tmp_path / f"fold{k}")
              for seed in (0, 1) for k in (0, 1)]  # fmt: skip
    assert trials[1].overrides[-2:] == [
        f"data.train={tmp_path}/fold1/train.jsonl", f"data.dev={tmp_path}/fold1/dev.jsonl",
    ]  # fmt: skip
    assert trials[1].steps()[1][-1] == f"{tmp_path}/fold1/dev.jsonl"
    for trial, errors, words in zip(trials[:3], (3, 1, 1), (4, 12, 4), strict=True):
        trial.folder.mkdir()
        one = {"words": {"rate": 0.0, "reference_units": words}, "errors": {trial.name: errors}}
        found = {"contexts": {"full": one}, "training": {"wall_seconds": 60}}
        trial.scores.write_text(json.dumps(found))
    (seed0,) = read_all(trials)  # a fold of the other seed is missing
    assert seed0["contexts"]["full"]["words"]["rate"] == 25.0
    assert seed0["contexts"]["full"]["errors"] == {"base-0-fold0": 3, "base-0-fold1": 1}


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("config: x.yaml\n")
    assert main([str(bad)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    study = str(PROJECT / "tools/studies/an4/ablations.yaml")
    for option in ("--seeds", "--jobs"):
        assert main([study, option, "0", "--output", str(tmp_path)]) == 2
        assert f"argument {option}: must be a whole number from 1 to" in capsys.readouterr().err
    with pytest.raises(UserError, match="is not a study"):
        read_study(tmp_path / "missing.yaml")


@pytest.mark.parametrize("path", sorted(PROJECT.glob("tools/studies/*/*.yaml")), ids=str)
def test_every_study_can_be_read_and_built(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from asrkit.config import load_config

    monkeypatch.chdir(PROJECT)
    study = read_study(path)
    for name in study.rows:
        load_config(study.config, Trial(study, name, 0, Path("exp")).overrides)
