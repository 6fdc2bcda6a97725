"""`asrkit data normalize`: nothing changes or goes without a word about it."""

import re
from pathlib import Path

import pytest

from tests.conftest import read_rows, speech, write_manifest, write_wav
from tests.running import run

Output = pytest.CaptureFixture[str]
TEXTS = {"a": "Yes, it&#39;s [laughs] on", "b": "[noise]", "c": "no", "d": "Call 112"}


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    for name in TEXTS:
        write_wav(tmp_path / f"{name}.wav", speech(0.2, seed=ord(name)))
    rows = [{"id": k, "audio": f"{k}.wav", "text": t, "mine": 1} for k, t in TEXTS.items()]
    return write_manifest(tmp_path / "m.jsonl", *rows)


def test_a_manifest(manifest: Path, tmp_path: Path, capsys: Output) -> None:
    output = tmp_path / "deep" / "new.jsonl"
    output.parent.mkdir()
    options = ("--case", "lower", "--punctuation", "remove")
    assert run("data", "normalize", manifest, "--output", output, *options) == 1
    rows = read_rows(output)
    assert [each["text"] for each in rows] == ["yes it's on", "no", "call 112"]
    assert rows[0]["audio"] == "../a.wav"
    assert rows[0]["mine"] == 1
    shown = capsys.readouterr()
    assert "entities         1: '&#39;' → \"'\" 1×" in shown.out
    assert "brackets         2: '[laughs]' removed 1×; '[noise]' removed 1×" in shown.out
    assert f"{output}: 3 of 4 utterances" in shown.out
    assert "left out 1, empty text: b" in shown.err


def test_the_check_names_the_options_that_mend(
    manifest: Path, tmp_path: Path, capsys: Output
) -> None:
    run("data", "check", manifest)
    advice = capsys.readouterr().out
    options = re.findall(r"asrkit data normalize (--\w+ \w+)", advice)
    assert options == ["--numbers en", "--punctuation remove"]
    options.remove("--numbers en")
    output = tmp_path / "n.jsonl"
    assert run("data", "normalize", manifest, "--output", output, *" ".join(options).split()) == 1
    capsys.readouterr()
    run("data", "check", output)
    after = capsys.readouterr().out
    assert "entities" not in after
    assert "brackets" not in after


def test_mistakes(manifest: Path, tmp_path: Path, capsys: Output) -> None:
    assert run("data", "normalize", manifest, "--output", manifest) == 2
    assert "is read and cannot be written" in capsys.readouterr().err
    with manifest.open("a") as file:
        file.write("{}\n")
    assert run("data", "normalize", manifest, "--output", tmp_path / "n.jsonl") == 2
    assert "m.jsonl:5: 'id': field required, got {}; asrkit data check" in capsys.readouterr().err
    assert run("data", "normalize", tmp_path / "x.jsonl", "--output", tmp_path / "n.jsonl") == 2
    assert not (tmp_path / "n.jsonl").exists()
