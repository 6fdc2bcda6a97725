"""`asrkit report`: a page of a training, self-contained, harmless whatever is in it; its audio."""

import base64
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile

from asrkit import train
from asrkit.commands.report import main
from asrkit.model_file import save_model
from asrkit.report import page as pages
from asrkit.report.page import PARTS
from asrkit.report.players import data_url, players
from asrkit.text import CharTokenizer
from tests.conftest import read_rows, speech, write_config, write_manifest
from tests.report.pages import Page
from tests.test_model_file import a_file

HOSTILE = "<script>alert('no')</script>"


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """A training's folder with nothing but its model."""
    save_model(tmp_path / "exp" / "model.safetensors", a_file(CharTokenizer(list("eno sy"))))
    return tmp_path / "exp"


def edited(manifest: Path, **changes: object) -> Path:
    lines = [row | changes for row in read_rows(manifest)]
    return write_manifest(manifest.with_name("edited.jsonl"), *lines)


def report(experiment: Path, manifest: Path, *options: object, status: int = 0) -> str:
    output = manifest.with_name("r.html")
    arguments = [experiment, "--manifest", manifest, "--output", output, *options]
    assert main([str(argument) for argument in arguments]) == status
    return output.read_text(encoding="utf-8")


def test_a_training(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every section, of what asrkit train leaves behind."""
    folder = tmp_path / "exp"
    config = write_config(tmp_path / "c.yaml", corpus, folder, validate_every_epochs=1)
    assert train.main(["--config", str(config)]) == 0
    assert main([str(folder)]) == 0
    assert "report.html: 0." in capsys.readouterr().err
    page = Page.of((folder / "report.html").read_text(encoding="utf-8"))
    assert page.open == []
    assert [value for key, value in page.attributes if key == "id"] == list(PARTS)
    assert {value for key, value in page.attributes if key == "href"} == {f"#{i}" for i in PARTS}
    for part in ("full context", "640 ms", "160 ms", "dev0", f"tensorboard --logdir {folder}",
                 "The manifest has no speakers", "1 to 2 s", "dim: 16"):  # fmt: skip
        assert part in page.text, part
    assert page.tags.count("audio") == page.tags.count("article") > 0
    (policy,) = (v for _, v in page.attributes if v and "default-src" in v)
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.partition("script-src 'sha256-")[2] != ""


def test_nothing_comes_from_outside(experiment: Path, corpus: Path) -> None:
    text = report(experiment, corpus / "dev.jsonl")
    assert not re.search(r"https?:|@import|url\(", text)
    sources = [value or "" for key, value in Page.of(text).attributes if key in ("src", "href")]
    assert all(source.startswith(("data:audio/", "#")) for source in sources)
    assert any(source.startswith("data:audio/") for source in sources)


def test_hostile_texts_do_not_run(experiment: Path, corpus: Path) -> None:
    manifest = edited(corpus / "dev.jsonl", text=f"no {HOSTILE}", speaker=HOSTILE)
    first, *others = read_rows(manifest)
    write_manifest(manifest, first | {"id": HOSTILE}, *others)
    folder = experiment.rename(experiment.with_name("<img src=x onerror=alert(1)>"))
    page = Page.of(report(folder, manifest))
    assert page.open == []
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert not [key for key, _ in page.attributes if key.startswith("on")]
    assert page.text.count("<script>alert") > 6
    assert "By speaker" in page.text


def test_control_without_escaping_texts_run(
    experiment: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = pages.environment()
    environment.autoescape = False
    monkeypatch.setattr(pages, "environment", lambda: environment)
    manifest = edited(corpus / "dev.jsonl", text=f"no {HOSTILE}")
    assert Page.of(report(experiment, manifest)).tags.count("script") > 1


def test_missing_parts_leave_a_sentence(experiment: Path, corpus: Path) -> None:
    manifest = edited(corpus / "dev.jsonl", text="")
    page = Page.of(report(experiment, manifest, "--chunk-ms", "80,full"))
    for sentence in ("In 80 ms chunks.", "The manifest has no speakers."):
        assert sentence in page.text


def test_recordings_too_short_for_a_frame(experiment: Path, corpus: Path) -> None:
    for i in range(3):
        soundfile.write(corpus / "audio" / f"dev{i}.flac", speech(0.001), 16000)
    assert Page.of(report(experiment, corpus / "dev.jsonl")).open == []


def test_mistakes(
    experiment: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(experiment)
    (tmp_path / "empty.jsonl").write_text("")
    for arguments, message in (
        ([str(tmp_path)], f"no model file {tmp_path}/model.safetensors"),
        ([folder], "no manifest b (from "),
        (
            [folder, "--manifest", str(tmp_path / "empty.jsonl")],
            "the manifest has no recording to score",
        ),
        ([folder, "--chunk-ms", "100"], "--chunk-ms must be a multiple"),
    ):
        assert main(arguments) == 2
        shown = capsys.readouterr().err
        assert message in shown
        assert len(shown.splitlines()) == 1


def test_recordings_are_whole_and_in_time(tmp_path: Path) -> None:
    """What is played is as long as the recording and not shifted."""
    samples = speech(2.0)
    (tmp_path / "x").write_bytes(base64.b64decode(data_url(samples).split(",")[1]))
    played, rate = soundfile.read(tmp_path / "x", dtype="float32")
    assert (len(played), rate) == (len(samples), 16000)
    middle = samples[1000:-1000]
    assert np.correlate(played, middle, "valid").argmax() == pytest.approx(1000, abs=2)


def test_a_full_page_leaves_audio_out() -> None:
    url = data_url(speech(1.0))
    assert [*players([speech(1.0)] * 2, len(url) + 10)] == [url, None]
    assert [*players([speech(1.0)], len(url) - 1)] == [None]
