"""Decode and align take every manifest that training takes."""

import json
from pathlib import Path

import pytest
from lhotse import CutSet

from asrkit.data.cuts import load_cuts
from asrkit.data.packing import pack
from asrkit.transcription.journal import FOLDER
from tests.conftest import speech, write_manifest, write_wav
from tests.running import run, talkative_model


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    write_wav(tmp_path / "a.wav", speech(3.0))
    return write_manifest(
        tmp_path / "m.jsonl",
        {"id": "whole", "audio": "a.wav", "text": "abc"},
        {"id": "part", "audio": "a.wav", "text": "ba", "start": 0.5, "duration": 1.5},
    )


@pytest.mark.parametrize("command", ["decode", "align"])
@pytest.mark.parametrize("name", ["cuts.jsonl", "cuts.jsonl.gz", "shards"])
def test_cuts_have_the_texts_of_a_plain_manifest(
    name: str, command: str, plain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, path = talkative_model(plain.with_name("m.safetensors")), plain.with_name(name)
    if name == "shards":
        pack(load_cuts(plain, []), path, 100, [])
    else:
        load_cuts(plain, []).to_file(path)
    outputs = []
    for manifest in (plain, path):
        options = ["--manifest", manifest, "--format", "jsonl"]
        assert run(command, "--model", model, *options) == 0
        outputs.append(capsys.readouterr())
    assert outputs[0] == outputs[1]
    assert [json.loads(line)["id"] for line in outputs[0].out.splitlines()] == ["whole", "part"]
    assert all(json.loads(line)["text"] for line in outputs[0].out.splitlines())


def test_cuts_are_decoded_again_after_a_change(
    plain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A text that is done is kept, unless a cut that only lhotse can read has changed."""
    model, path = talkative_model(plain.with_name("m.safetensors")), plain.with_name("c.jsonl")
    out, (cut, other) = plain.with_name("out"), load_cuts(plain, [])
    command = ["decode", "--model", model, "--manifest", path, "--output-dir", out]
    for snr, runs in ((20.0, 1), (20.0, 1), (0.0, 2)):
        CutSet([cut.mix(other, snr=snr).with_id("x")]).to_file(path)
        assert run(*command) == 0
        assert len(list((out / FOLDER).glob("*.jsonl"))) == runs
    capsys.readouterr()
