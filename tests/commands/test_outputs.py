"""What decode and align write: every format, to standard output and to files."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

import asrkit
from asrkit.errors import UserError
from asrkit.runtime import Recognizer, Result, Word
from asrkit.runtime.formats import FORMATS
from asrkit.runtime.words import sureness
from tests.conftest import speech, write_manifest, write_wav
from tests.kept.measured import FOLDER
from tests.running import run

Shown = Callable[..., str]
Output = pytest.CaptureFixture[str]


@pytest.fixture
def wavs(tmp_path: Path) -> list[Path]:
    return [write_wav(tmp_path / f"{name}.wav", speech(2.0 + i, i)) for i, name in enumerate("ab")]


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_for_each(form: str, model: Path, wavs: list[Path], shown: Shown) -> None:
    """The same as standard output has of one recording, and what Python gives."""
    folder, command = model.with_name("out"), ["decode", "--model", model, "--format", form]
    assert shown(*command, "--output-dir", folder, *wavs) == ""
    alone = [shown(*command, wav) for wav in wavs]
    files = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("[!.]*")}
    assert files == {f"{wav.stem}.{form}": text for wav, text in zip(wavs, alone, strict=True)}
    result = asrkit.load(model).transcribe(wavs[0])
    if form != "jsonl" and form != "json":  # whose confidences may differ in the last digit
        assert alone[0] == result.to(form, str(wavs[0]), 2.0)
    if not FORMATS[form].joins:
        shown(*command, *wavs, status=2)
        return
    both = alone[0] + alone[1]
    if form == "txt":
        both = "".join(f"{wav}\t{text}" for wav, text in zip(wavs, alone, strict=True))
    assert shown(*command, *wavs) == both


def test_files_that_would_be_one(
    model: Path, wavs: list[Path], shown: Shown, refused: Shown
) -> None:
    folder, more = model.with_name("out"), model.with_name("more")
    more.mkdir()
    other = write_wav(more / "a.flac", speech(1.0))
    options = ["decode", "--model", model, "--output-dir", folder]
    said = f"{wavs[0]} and {other} would have the same file {folder / 'a.txt'}"
    assert said in refused(*options, *wavs, other)
    assert not folder.exists()
    rows = ({"id": i, "audio": "a.wav"} for i in ("x/a.b", "../up", ".."))
    shown(*options, "--manifest", write_manifest(model.with_name("m.jsonl"), *rows))
    assert sorted(p.name for p in folder.glob("*.txt")) == ["...txt", ".._up.txt", "x_a.b.txt"]


@pytest.mark.parametrize("chunk", [["--chunk-ms", "full"], ["--chunk-ms", "320"]])
def test_align_finds_the_words_that_decode_does(
    chunk: list[str], model: Path, wavs: list[Path], shown: Shown
) -> None:
    """The text that greedy search finds has the times of its likeliest path."""
    options = ["--model", model, "--format", "json", wavs[0]]

    def words(command: str, *more: str) -> tuple[str, list[tuple[str, float, float]]]:
        found = json.loads(shown(command, *options, *more))
        return found["text"], [(w["text"], w["start"], w["end"]) for w in found["words"]]

    text, expected = words("decode", *chunk)
    assert expected
    for case in (text, f"  {text}\n"):
        assert words("align", *chunk, "--text", case) == (text, expected)
    if "full" in chunk:  # which is the default
        assert words("align", "--text", text) == (text, expected)


def test_align_a_manifest(model: Path, wavs: list[Path], capsys: Output) -> None:
    """What cannot be aligned is named, and why; the others are."""
    texts = {"good": "ab cd", "odd": "ab!", "long": "ab" * 100, "none": None, "empty": " "}
    rows = [{"id": name, "audio": "a.wav", "text": text} for name, text in texts.items()]
    rows += [{"id": "part", "audio": "a.wav", "text": "ab", "start": 1.0, "duration": 0.5}]
    rows += [{"id": "missing", "audio": "no.wav", "text": "ab"}]
    manifest = write_manifest(model.with_name("m.jsonl"), *rows)
    assert run("align", "--model", model, "--manifest", manifest, "--format", "jsonl") == 1
    shown = capsys.readouterr()
    lines = [json.loads(line) for line in shown.out.splitlines()]
    assert [(line["id"], line["text"]) for line in lines] == [("good", "ab cd"), ("part", "ab")]
    assert lines[1]["words"][0]["end"] <= 0.5
    messages = dict(line.split(": ", 2)[1:] for line in shown.err.splitlines())
    assert messages.keys() == {"odd", "long", "none", "empty", "missing"}
    assert "not in the vocabulary: '!'" in messages["odd"]
    assert messages["long"] == (
        "the text is too long for the audio: its 200 tokens do not fit into 50 frames"
    )
    assert messages["none"] == messages["empty"] == "the text to align is missing or empty"


def test_align_one_file(model: Path, wavs: list[Path], shown: Shown, refused: Shown) -> None:
    out = shown("align", "--model", model, wavs[0], "--text", "ab cd")
    assert [word["text"] for word in json.loads(out)["words"]] == ["ab", "cd"]
    assert "--text needs an audio file" in refused("align", "--model", model, "--text", "ab")


def test_one_bad_recording_leaves_the_others(model: Path, wavs: list[Path], capsys: Output) -> None:
    """Whatever is wrong with the file of a line, those around it have their transcripts."""
    model.with_name("text.wav").write_text("no audio")
    bad: list[dict[str, object]] = [
        {"start": 5.0}, {"audio": "x" * 4000}, {"audio": "text.wav"}, {"audio": "a\0b.wav"},
    ]  # fmt: skip
    good = {"id": "first", "audio": "a.wav", "text": "no"}
    lines = [good, *(good | {"id": f"bad{i}"} | keys for i, keys in enumerate(bad))]
    manifest = write_manifest(model.with_name("m.jsonl"), *lines, good | {"id": "last"})
    arguments = ["--model", model, "--manifest", manifest, "--format"]
    assert run("decode", *arguments, "jsonl") == 1
    shown = capsys.readouterr()
    assert [json.loads(line)["id"] for line in shown.out.splitlines()] == ["first", "last"]
    problems = [line for line in shown.err.splitlines() if line.startswith("asrkit decode: ")]
    assert len(problems) == len(bad) + 1
    assert "in 2 of 2 recordings" in problems.pop()
    assert max(map(len, problems)) < 800
    assert run("align", *arguments, "jsonl") == 1
    problems = [line for line in capsys.readouterr().err.splitlines() if "asrkit align: " in line]
    assert len(problems) >= len(bad)


def test_a_batch_that_fails_has_its_good_recordings(
    model: Path, wavs: list[Path], capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = Recognizer.transcribe_batch

    def particular(self: Recognizer, batch: list[np.ndarray]) -> list[Result]:
        if any(len(samples) == 2 * 16000 for samples in batch):
            raise UserError("not that one")
        return together(self, batch)

    monkeypatch.setattr(Recognizer, "transcribe_batch", particular)
    assert run("decode", "--model", model, *wavs) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith(f"asrkit decode: {wavs[0]}: not that one\n")
    assert shown.out.startswith(str(wavs[1]))


def test_any_name_has_a_file_of_its_own(model: Path, wavs: list[Path], shown: Shown) -> None:
    """Ids longer than a file's name may be, and with what acts on a terminal; bytes of no UTF-8."""
    ids = ["ä" * 300, "ä" * 299 + "b", "a" * 191 + "ä" * 10, "up\x1b[2J\n"]
    lines = ({"id": id_, "audio": "a.wav"} for id_ in ids)
    manifest = write_manifest(model.with_name("m.jsonl"), *lines)
    odd = Path(os.fsdecode(os.fsencode(model.parent) + b"/a\xff.wav"))
    odd.write_bytes(wavs[0].read_bytes())
    arguments = ["decode", "--model", model, "--manifest", manifest, odd]
    out = shown(*arguments).splitlines()
    assert out[0].startswith(f"{model.parent}/a\\udcff.wav\t")
    assert out[-1].startswith("up\\x1b[2J\\n\t")
    shown(*arguments, "--output-dir", model.with_name("out"))
    names = [path.name for path in model.with_name("out").glob("*.txt")]
    assert len(names) == 5
    assert all(len(name.encode()) < 220 and name.isprintable() for name in names)


def test_a_text_far_from_the_model_is_reported(tmp_path: Path, capsys: Output) -> None:
    """Speech at 0.6 of its speed is not what the model learned; the recording itself is."""
    own = FOLDER / "speech" / "command.flac"
    samples, rate = soundfile.read(own, dtype="float32")
    slow = np.interp(np.arange(0, len(samples), 0.6), range(len(samples)), samples)
    far = write_wav(tmp_path / "far.wav", slow, rate)
    line = "the model may not know this language, these words or this sound\n"
    for command, files, expected in (
        ("decode", [far], rf"mean confidence [2-6]\d %: {line}"),
        ("stream", [far], rf"mean confidence [2-6]\d %: {line}"),
        ("decode", [own, far, own.with_name("call.flac")], f" % in 1 of 3 recordings: {line}"),
        ("decode", [own], "^$"),
        ("stream", [own], "^$"),
    ):
        assert run(command, "--model", "small-en-alnum", "--format", "jsonl", *files) == 0
        shown = capsys.readouterr()
        assert re.search(expected, shown.err)
        assert all(json.loads(each) for each in shown.out.splitlines())
    assert sureness([Word("a", 0.0, 0.1, 0.3)]) is sureness([]) is None  # a word says too little
