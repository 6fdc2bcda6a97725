"""Jobs of a study: what fails is named, and the others go on."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROJECT
from tools.studies import jobs
from tools.studies.ablations.__main__ import Trial, read_study

STUDY = read_study(PROJECT / "tools/studies/digits/positions.yaml")


def test_a_failure_is_named_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, good = (Trial(STUDY, kind, 0, tmp_path) for kind in ("rotary", "none"))
    ran = []

    def run(command: list[str], stdout: Any, **_: Any) -> subprocess.CompletedProcess[str]:
        ran.append(command[2])
        stdout.write(b"first line\n" * 20 + b"it broke here\n")
        return subprocess.CompletedProcess(command, int("model.position.kind=rotary" in command))

    monkeypatch.setattr(jobs.subprocess, "run", run)
    assert jobs.run_all([bad, good], at_once=1) == [bad]
    assert ran == ["asrkit.train", "asrkit.train", "asrkit.evaluate"]
    shown = capsys.readouterr().err
    assert "rotary-0 failed" in shown
    assert "it broke here" in shown
    assert shown.count("first line") < 20


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = Trial(STUDY, "none", 0, tmp_path)
    done.folder.mkdir(parents=True)
    (done.folder / "model.safetensors").touch()
    done.scores.touch()
    monkeypatch.setattr(jobs.subprocess, "run", lambda *_, **__: pytest.fail("done again"))
    assert jobs.run_all([done], at_once=2) == []
