"""`asrkit evaluate`: a table for people, JSON for programs, and what is left out is named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asrkit.model_file import save_model
from asrkit.text import CharTokenizer
from tests.conftest import read_rows, speech, write_manifest, write_wav
from tests.running import run, talkative_model
from tests.test_model_file import a_file

Shown = Callable[..., str]
Output = pytest.CaptureFixture[str]
KINDS = ("substitutions", "deletions", "insertions")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_model(tmp_path / "m.safetensors", a_file(CharTokenizer(list("eno sy"))))
    return tmp_path / "m.safetensors"


@pytest.fixture
def dev(corpus: Path) -> Path:
    return corpus / "dev.jsonl"


def edited(dev: Path, *texts: str | None) -> Path:
    """Write the manifest with other texts; None for a line without a text."""
    lines = read_rows(dev)
    for line, text in zip(lines, texts, strict=True):
        line.pop("text")
        line |= {} if text is None else {"text": text}
    return write_manifest(dev.with_name("e.jsonl"), *lines)


def scores(shown: Shown, *arguments: object) -> dict[str, Any]:
    """Return the values of each context that a command prints as JSON."""
    found: dict[str, Any] = json.loads(shown(*arguments, "--format", "json"))["contexts"]
    return found


def test_table(model: Path, dev: Path, shown: Shown) -> None:
    table = shown("evaluate", "--model", model, "--chunk-ms", "full,160", dev)
    title, *rows = (line.split() for line in table.splitlines())
    assert " ".join(title) == "chunk WER 95 % errors words CER delay ms median 90 % last ECE"
    assert [row[0] for row in rows] == ["full", "160"]
    assert all(row[-9] == "5" for row in rows)  # words


def test_json(model: Path, dev: Path, capsys: Output) -> None:
    (dev.parent / "audio" / "dev1.flac").unlink()
    options = ["--chunk-ms", "640", "--format", "json"]
    assert run("evaluate", "--model", model, *options, dev) == 1
    shown = capsys.readouterr()
    score = json.loads(shown.out)["contexts"]["640 ms"]
    errors = sum(score["words"][kind] for kind in KINDS)
    assert score["words"]["reference_units"] == 4
    assert score["words"]["rate"] == pytest.approx(25 * errors)
    assert score["characters"]["reference_units"] == len("yes no" + "no yes")
    assert score["characters"]["rate"] > 0
    assert sum(score["errors"].values()) == errors
    assert 0 < score["calibration_error"] <= 1
    low, high = score["interval"]
    assert low <= score["words"]["rate"] <= high
    assert json.loads(shown.out)["training"] == {"dev_wer": {"full": 1.5}}
    assert shown.err.startswith("asrkit evaluate: not scored dev1: ")


def test_compare(model: Path, dev: Path, shown: Shown, refused: Shown) -> None:
    """The rates are those of evaluate, and the difference is that of their means."""
    other, chunk = model.with_name("o.safetensors"), ["--chunk-ms", "160", dev]
    save_model(other, a_file(CharTokenizer(list("eno syx"))))
    first, second = (
        scores(shown, "evaluate", "--model", each, *chunk)["160 ms"]["words"]["rate"]
        for each in (model, other)
    )
    found = json.loads(shown("compare", model, f"{model},{other}", *chunk, "--format", "json"))
    assert found["wer"] == {"base": [first], "other": [first, second]}
    assert found["points"] == pytest.approx((second - first) / 2)
    lines = shown("compare", model, model, *chunk).splitlines()
    assert lines[1].split()[:5] == ["BASE", "1", "160", "ms", f"{first:.2f}"]
    chance = "+0.00 points (95 %: +0.00 to +0.00), +0.0 % (+0.0 to +0.0): may be chance"
    assert lines[-2].endswith(chance)
    assert lines[-1].startswith("one model a side")
    assert "no.safetensors" in refused("compare", model, "no.safetensors", dev)


def test_full_context_beside_two_passes_has_the_first_search(tmp_path: Path, shown: Shown) -> None:
    model = talkative_model(tmp_path / "m.safetensors")
    write_wav(tmp_path / "a.wav", speech(1.0))
    manifest = write_manifest(tmp_path / "x.jsonl", {"id": "a", "audio": "a.wav", "text": "a"})
    options = ["--model", model, "--chunk-ms", "full,320", "--second-pass", "full", manifest]
    plain = scores(shown, "evaluate", *options)
    penalty = ["--second-search", "{kind: greedy, blank_penalty: 9}"]
    other = scores(shown, "evaluate", *options, *penalty)
    names = list(plain)
    assert names[0] == "full"
    assert other["full"] == plain["full"]
    assert other[names[1]] != plain[names[1]]  # control


def test_mistakes(model: Path, dev: Path, refused: Shown) -> None:
    assert "no.jsonl does not exist" in refused("evaluate", "--model", model, "no.jsonl")
    device = refused("evaluate", "--model", model, "--device", "foo", dev)
    assert "device must be one of cpu" in device
    dev.write_text("")
    said = refused("evaluate", "--model", model, dev)
    assert "the manifest has no recording to score" in said


def test_what_has_no_text_is_not_scored(model: Path, dev: Path, capsys: Output) -> None:
    """Without a text nothing can be wrong; with an empty one, whatever is recognised is."""
    manifest = edited(dev, None, "", "no yes")
    form = ["--chunk-ms", "160", "--format", "json"]
    assert run("evaluate", "--model", model, *form, manifest) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["contexts"]["160 ms"]["errors"].keys() == {"dev1", "dev2"}
    assert shown.err == "asrkit evaluate: not scored dev0: no text\n"


def test_references_without_a_word_have_no_rate(
    model: Path, dev: Path, shown: Shown, capsys: Output
) -> None:
    """Not 0.00 %, as if all were right; the control: one word in one of them."""
    options = ["--model", model, "--chunk-ms", "160"]
    for text, cell in (("no", " %"), ("", "no words         –")):
        manifest = edited(dev, text, text, text)
        row = shown("evaluate", *options, manifest).splitlines()[1]
        assert cell in row
        assert "0.00 %" not in row
        score = scores(shown, "evaluate", *options, manifest)["160 ms"]
        assert (score["words"]["rate"] is None) == (score["interval"] is None) == (text == "")
    assert run("decode", "--model", model, "--manifest", manifest) == 0
    assert "WER no reference words" in capsys.readouterr().err


def test_written_text(model: Path, dev: Path, shown: Shown) -> None:
    """A table and JSON of the normalised words in each context."""
    pytest.importorskip("whisper_normalizer")
    path = model.with_name("w.safetensors")
    save_model(path, a_file(CharTokenizer(list("Eno sy."))))
    arguments = ["evaluate", "--model", path, "--chunk-ms", "full,160", dev, "--written"]
    _, words = shown(*arguments, "english").split("\n\n")
    assert [line.split()[0] for line in words.splitlines()] == [
        "chunk", "full", "160", "normalised",
    ]  # fmt: skip
    assert "english rules" in words
    contexts = scores(shown, *arguments, "basic")
    assert contexts["160 ms"]["written"]["normalized"]["reference_units"] == 5
