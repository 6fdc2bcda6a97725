"""`asrkit evaluate`: a table for people, JSON for programs, and what is left out is named."""

import json
from pathlib import Path

import pytest

from asrkit.commands import compare, decode, evaluate, ngram
from asrkit.model_file import save_model
from asrkit.text import CharTokenizer
from asrkit.text.graphemes import units
from tests.conftest import speech, write_manifest, write_wav
from tests.running import UNSPACED, run, talkative_model
from tests.test_model_file import a_file


@pytest.fixture
def model(tmp_path: Path) -> str:
    save_model(tmp_path / "m.safetensors", a_file(CharTokenizer(list("eno sy"))))
    return str(tmp_path / "m.safetensors")


def test_table(model: str, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--model", model, "--chunk-ms", "full,160", str(corpus / "dev.jsonl")]
    assert evaluate.main(arguments) == 0
    title, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    assert " ".join(title) == "chunk WER 95 % errors words CER delay ms median 90 % last ECE"
    assert [row[0] for row in rows] == ["full", "160"]
    assert all(row[-9] == "5" for row in rows)  # words


def test_table_of_a_script_without_spaces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its sentences are scored by their characters; controls: with words, and words alone."""
    model = talkative_model(tmp_path / "m.safetensors", labels=UNSPACED)
    audio = write_wav(tmp_path / "a.wav", speech(2.0))
    assert run("decode", "--model", model, "--chunk-ms", "full", audio) == 0
    text = capsys.readouterr().out.strip().rpartition("\t")[2].rstrip("，")
    count = len(units(text))
    for reference, titles, expected in (
        (text, "CER 95 % errors characters delay", count),
        (f"{text} ok", "MER 95 % errors units CER delay", count + 1),
        ("ok", "WER 95 % errors words CER delay", 1),
    ):
        row = {"id": "a", "audio": "a.wav", "text": reference}
        manifest = write_manifest(tmp_path / "x.jsonl", row)
        assert run("evaluate", "--model", model, "--chunk-ms", "full", manifest) == 0
        title, cells = (line.split() for line in capsys.readouterr().out.splitlines())
        assert " ".join(title).startswith(f"chunk {titles}")
        assert cells[-7 if title[1] == "CER" else -9] == str(expected)
        assert run("compare", model, model, "--chunk-ms", "full", manifest) == 0
        assert capsys.readouterr().out.split()[2] == title[1]


def test_json(model: str, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (corpus / "audio" / "dev1.flac").unlink()
    arguments = ["--model", model, "--chunk-ms", "640", "--format", "json"]
    assert evaluate.main([*arguments, str(corpus / "dev.jsonl")]) == 1
    shown = capsys.readouterr()
    score = json.loads(shown.out)["contexts"]["640 ms"]
    assert score["words"]["reference_units"] == 4
    assert score["words"]["rate"] == pytest.approx(25 * sum(
        score["words"][kind] for kind in ("substitutions", "deletions", "insertions")
    ))  # fmt: skip
    assert score["characters"]["reference_units"] == len("yes no" + "no yes")
    assert score["characters"]["rate"] > 0
    assert shown.err.startswith("asrkit evaluate: not scored dev1: ")
    assert sum(score["errors"].values()) == sum(
        score["words"][kind] for kind in ("substitutions", "deletions", "insertions")
    )
    accuracy = score["word_accuracy"]
    assert 0 < accuracy["calibration_error"] <= 1
    assert accuracy.keys() == {"calibration_error", "start_ms", "end_ms"}
    low, high = score["interval"]
    assert low <= score["words"]["rate"] <= high
    assert json.loads(shown.out)["training"] == {"dev_wer": {"full": 1.5}}
    output = corpus / "scores" / "dev.json"
    assert evaluate.main([*arguments, "--output", str(output), str(corpus / "dev.jsonl")]) == 1
    assert json.loads(output.read_text()) == json.loads(shown.out)
    assert capsys.readouterr().out == ""


def test_turns(model: str, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dev = str(corpus / "dev.jsonl")
    arguments = ["--model", model, "--chunk-ms", "160", "--turns"]
    assert evaluate.main([*arguments, "--endpoint-ms", "80", dev]) == 0
    title, row = capsys.readouterr().out.splitlines()[-2:]
    assert title.split() == [
        "chunk",
        "turns",
        "cut",
        "early",
        "to",
        "final",
        "ms",
        "95",
        "%",
        "open",
    ]
    assert row.split()[0] == "160"
    form = ["--endpoint-ms", "80", "--format", "json"]
    assert evaluate.main([*arguments, *form, dev]) == 0
    (context,) = json.loads(capsys.readouterr().out)["contexts"].values()
    assert context["turns"].keys() == {"turns", "early", "open", "median_ms", "p95_ms"}
    assert evaluate.main([*arguments, dev]) == 2
    assert "give --endpoint-ms" in capsys.readouterr().err


def test_compare(
    model: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rates are those of evaluate, and the difference is that of their means."""
    other, dev = str(tmp_path / "o.safetensors"), str(corpus / "dev.jsonl")
    save_model(Path(other), a_file(CharTokenizer(list("eno syx"))))
    rates = {}
    for each in (model, other):
        evaluate.main(["--model", each, "--chunk-ms", "160", "--format", "json", dev])
        scores = json.loads(capsys.readouterr().out)["contexts"]["160 ms"]
        rates[each] = scores["words"]["rate"]
    form = ["--chunk-ms", "160", "--format", "json"]
    assert compare.main([model, f"{model},{other}", *form, dev]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["wer"] == {"base": [rates[model]], "other": [rates[model], rates[other]]}
    assert found["points"] == pytest.approx((rates[other] - rates[model]) / 2)
    assert compare.main([model, model, "--chunk-ms", "160", dev]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[1].split()[:5] == ["BASE", "1", "160", "ms", f"{rates[model]:.2f}"]
    assert shown[-2].endswith(
        "+0.00 points (95 %: +0.00 to +0.00), +0.0 % (+0.0 to +0.0): may be chance"
    )
    assert shown[-1].startswith("one model a side")
    assert compare.main([model, "no.safetensors", dev]) == 2
    assert "no.safetensors" in capsys.readouterr().err


def test_another_search(model: str, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is scored is what decode writes with that search."""
    arguments = ["--model", model, "--search", "prefix_beam", "--beam", "3"]
    dev = str(corpus / "dev.jsonl")
    assert evaluate.main([*arguments, "--chunk-ms", "160", "--format", "json", dev]) == 0
    words = json.loads(capsys.readouterr().out)["contexts"]["160 ms"]["words"]
    assert decode.main([*arguments, "--chunk-ms", "160", "--manifest", dev]) == 0
    errors = sum(words[kind] for kind in ("substitutions", "deletions", "insertions"))
    assert f"({errors} of 5:" in capsys.readouterr().err


def test_full_context_beside_two_passes_has_the_first_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = talkative_model(tmp_path / "m.safetensors")
    write_wav(tmp_path / "a.wav", speech(1.0))
    manifest = write_manifest(tmp_path / "x.jsonl", {"id": "a", "audio": "a.wav", "text": "a"})
    options = ["--chunk-ms", "full,320", "--second-pass", "full", "--format", "json", manifest]
    contexts = []
    for search in ([], ["--second-search", "{kind: greedy, blank_penalty: 9}"]):
        assert run("evaluate", "--model", model, *options, *search) == 0
        contexts.append(json.loads(capsys.readouterr().out)["contexts"])
    plain, other = contexts
    names = list(plain)
    assert names[0] == "full"
    assert other["full"] == plain["full"]
    assert other[names[1]] != plain[names[1]]  # control


def test_mistakes(model: str, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for chunk in ("0", "100", "ten"):
        assert (
            evaluate.main(["--model", model, "--chunk-ms", chunk, str(corpus / "dev.jsonl")]) == 2
        )
        assert "--chunk-ms must be" in capsys.readouterr().err
    assert evaluate.main(["--model", model, str(corpus / "no.jsonl")]) == 2
    assert "no.jsonl does not exist" in capsys.readouterr().err
    (corpus / "dev.jsonl").write_text("")
    assert evaluate.main(["--model", model, str(corpus / "dev.jsonl")]) == 2
    assert "the manifest has no recording to score" in capsys.readouterr().err
    assert evaluate.main(["--model", model, "--device", "foo", str(corpus / "train.jsonl")]) == 2
    assert "device must be one of cpu" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["0", "-3", "nan", "inf", "ten"])
def test_a_batch_has_a_length(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate.main(["--model", "m", "--batch-seconds", seconds, "dev.jsonl"]) == 2
    assert (
        f"--batch-seconds: must be a number from 0.1 to 86400.0, got '{seconds}'"
        in capsys.readouterr().err
    )


def test_a_language_model(
    model: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With enough weight only what it knows is heard."""
    arpa, dev = str(tmp_path / "lm.arpa"), str(corpus / "dev.jsonl")
    assert ngram.main(["--output", arpa, str(corpus / "train.jsonl")]) == 0
    arguments = ["--model", model, "--chunk-ms", "160", "--search", "prefix_beam", "--beam", "30"]
    wrong = []
    for options in ([], ["--lm", arpa, "--lm-weight", "5", "--word-bonus", "0"]):
        assert evaluate.main([*arguments, *options, "--format", "json", dev]) == 0
        wrong.append(json.loads(capsys.readouterr().out)["contexts"]["160 ms"]["words"])
    assert wrong[0] != wrong[1]


def test_what_has_no_text_is_not_scored(
    model: str, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a text nothing can be wrong; with an empty one, whatever is found is."""
    lines = [json.loads(line) for line in (corpus / "dev.jsonl").read_text().splitlines()]
    lines[0].pop("text")
    lines[1]["text"] = ""
    manifest = write_manifest(corpus / "some.jsonl", *lines)
    assert (
        evaluate.main(["--model", model, "--chunk-ms", "160", "--format", "json", str(manifest)])
        == 1
    )
    shown = capsys.readouterr()
    scored = json.loads(shown.out)["contexts"]["160 ms"]["errors"]
    assert set(scored) == {lines[1]["id"], lines[2]["id"]}
    assert shown.err == f"asrkit evaluate: not scored {lines[0]['id']}: no text\n"


def test_references_without_a_word_have_no_rate(
    model: str, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not 0.00 %, as if all were right; the control: one word in one of them."""
    lines = [json.loads(line) for line in (corpus / "dev.jsonl").read_text().splitlines()]
    for text, shown in (("", "no words         –"), ("no", " %")):
        path = write_manifest(corpus / "e.jsonl", *(each | {"text": text} for each in lines))
        arguments = ["--model", model, "--chunk-ms", "160", str(path)]
        assert evaluate.main(arguments) == 0
        row = capsys.readouterr().out.splitlines()[1]
        assert shown in row
        assert ("0.00 %" in row) is False
        assert evaluate.main([*arguments, "--format", "json"]) == 0
        score = json.loads(capsys.readouterr().out)["contexts"]["160 ms"]
        assert (score["words"]["rate"] is None) == (score["interval"] is None) == (text == "")
    empty = write_manifest(corpus / "e.jsonl", *(each | {"text": ""} for each in lines))
    assert decode.main(["--model", model, "--manifest", str(empty)]) == 0
    assert "WER no reference words" in capsys.readouterr().err


def test_written_text(tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables and JSON of the normalised words, and of capitals and marks, in each context."""
    pytest.importorskip("whisper_normalizer")
    path, dev = str(tmp_path / "w.safetensors"), str(corpus / "dev.jsonl")
    save_model(Path(path), a_file(CharTokenizer(list("Eno sy."))))
    arguments = ["--model", path, "--chunk-ms", "full,160"]
    assert evaluate.main([*arguments, "--written", "english", dev]) == 0
    shown = capsys.readouterr()
    assert not shown.err
    _, words, marks = shown.out.split("\n\n")
    assert [line.split()[0] for line in words.splitlines()] == [
        "chunk",
        "full",
        "160",
        "normalised",
    ]
    assert "english rules" in words
    assert {tuple(line.split()[:2]) for line in marks.splitlines()[1:]} >= {("full", "capitals")}
    assert evaluate.main([*arguments, "--written", "basic", "--format", "json", dev]) == 0
    contexts = json.loads(capsys.readouterr().out)["contexts"]
    assert contexts["160 ms"]["written"]["normalized"]["reference_units"] == 5
    assert contexts["full"]["written"]["marks"]["capitals"]["reference"] == 0
    assert evaluate.main(["--model", path, "--chunk-ms", "160", dev]) == 0  # the control
    assert "normalised" not in capsys.readouterr().out


def test_a_model_without_capitals_says_so(
    model: str, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("whisper_normalizer")
    arguments = ["--model", model, "--chunk-ms", "160", "--written", "english"]
    assert evaluate.main([*arguments, str(corpus / "dev.jsonl")]) == 0
    said = "the model's labels have no capitals beside small letters and no marks\n"
    assert capsys.readouterr().err == f"asrkit evaluate: {said}"
