"""Decode and align take every manifest that training takes."""

import json
from pathlib import Path

import pytest

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
def test_shards_have_the_texts_of_a_manifest(
    command: str, plain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, shards = talkative_model(plain.with_name("m.safetensors")), plain.with_name("shards")
    assert run("data", "shard", plain, "--output", shards) == 0
    capsys.readouterr()
    outputs = []
    for manifest in (plain, shards):
        options = ["--manifest", manifest, "--format", "jsonl"]
        assert run(command, "--model", model, *options) == 0
        outputs.append(capsys.readouterr())
    assert outputs[0] == outputs[1]
    assert [json.loads(line)["id"] for line in outputs[0].out.splitlines()] == ["whole", "part"]
    assert all(json.loads(line)["text"] for line in outputs[0].out.splitlines())
