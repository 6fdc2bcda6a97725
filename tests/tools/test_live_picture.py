"""The picture of README: what a session wrote, in order, in an SVG that a browser can read."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import asrkit
from tests.conftest import speech, write_wav
from tools.live_picture import main, run


def test_run_and_picture_show_the_same_updates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    samples = speech(3.0)
    path, output = write_wav(tmp_path / "a.wav", samples), tmp_path / "a.svg"
    monkeypatch.setattr(sys, "argv", ["live_picture", str(path), "--output", str(output)])
    main()
    printed = [line.split(" s  ")[1] for line in capsys.readouterr().out.splitlines()]
    live, final = run("small-en-alnum", samples, 16000)
    assert printed == [each.text for each in (*live, final)]
    assert final.text == asrkit.load("small-en-alnum", chunk_size="full").transcribe(path).text
    assert final.text in "".join(ElementTree.parse(output).getroot().itertext())
