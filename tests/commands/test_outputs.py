"""What decode and align write: every format, to standard output and to files, and n-best lists."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile

import asrkit
from asrkit.commands import align, decode
from asrkit.errors import UserError
from asrkit.model_file import save_model
from asrkit.runtime import Recognizer, Result, Word
from asrkit.runtime.formats import FORMATS
from asrkit.runtime.words import far_from_model, sureness
from asrkit.text import CharTokenizer
from tests.conftest import speech, timed, write_manifest
from tests.kept.measured import FOLDER
from tests.running import run, talkative_model
from tests.test_model_file import a_file


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(talkative_model(tmp_path / "m.safetensors"))


@pytest.fixture
def wavs(tmp_path: Path) -> list[str]:
    paths = [tmp_path / f"{name}.wav" for name in ("a", "b")]
    for i, path in enumerate(paths):
        soundfile.write(path, speech(2.0 + i, seed=i), 16000)
    return [str(path) for path in paths]


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_for_each(
    form: str, model: str, wavs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same as standard output has of one recording, and what Python gives."""
    folder = tmp_path / "out"
    arguments = ["--model", model, "--format", form]
    assert decode.main([*arguments, "--output-dir", str(folder), *wavs]) == 0
    assert capsys.readouterr().out == ""
    assert sorted(path.name for path in folder.glob("[!.]*")) == [f"a.{form}", f"b.{form}"]
    shown = []
    for wav in wavs:
        assert decode.main([*arguments, wav]) == 0
        shown.append(capsys.readouterr().out)
        assert (folder / f"{Path(wav).stem}.{form}").read_text(encoding="utf-8") == shown[-1]
    result = asrkit.load(model).transcribe(wavs[0])
    if form != "jsonl" and form != "json":  # whose confidences may differ in the last digit
        assert shown[0] == result.to(form, wavs[0], 2.0)
    status = decode.main([*arguments, *wavs])
    both = capsys.readouterr()
    if not FORMATS[form].joins:
        assert status == 2
        assert f"a {form} file has only one recording, got 2: use --output-dir DIR" in both.err
    elif form == "txt":
        assert both.out == "".join(f"{w}\t{s}" for w, s in zip(wavs, shown, strict=True))
    else:
        assert both.out == shown[0] + shown[1].removeprefix(FORMATS[form].header)


def test_files_that_would_be_one(
    model: str, wavs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "more").mkdir()
    other = tmp_path / "more" / "a.flac"
    soundfile.write(other, speech(1.0), 16000)
    folder = tmp_path / "out"
    options = ["--model", model, "--output-dir", str(folder)]
    assert decode.main([*options, *wavs, str(other)]) == 2
    message = capsys.readouterr().err
    assert f"{wavs[0]} and {other} would have the same file {folder / 'a.txt'}" in message
    assert not folder.exists()
    manifest = write_manifest(
        tmp_path / "m.jsonl", *({"id": i, "audio": "a.wav"} for i in ("x/a.b", "../up", ".."))
    )
    assert decode.main([*options, "--manifest", str(manifest)]) == 0
    assert sorted(p.name for p in folder.glob("*.txt")) == ["...txt", ".._up.txt", "x_a.b.txt"]


def test_what_fails_has_no_file(
    model: str, wavs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    missing = str(tmp_path / "missing.wav")
    options = ["--model", model, "--output-dir", str(folder), "--format", "vtt"]
    assert decode.main([*options, missing, *wavs]) == 1
    assert "does not exist" in capsys.readouterr().err
    assert [path.name for path in sorted(folder.glob("[!.]*"))] == ["a.vtt", "b.vtt"]


def test_nbest(model: str, wavs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    beam = ["--model", model, "--search", "prefix_beam"]
    assert decode.main([*beam, "--format", "jsonl", "--nbest", "3", *wavs]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for line in lines:
        assert len(line["nbest"]) == 3
        assert line["nbest"][0]["text"] == line["text"]
        assert line["nbest"][0].keys() == {"text", "score", "probability"}
    for options, message in (
        ([*beam, "--nbest", "3"], "--nbest needs --format jsonl, got txt"),
        (
            [*beam, "--nbest", "-1", "--format", "jsonl"],
            "--nbest: must be a whole number from 0 to 100000, got '-1'",
        ),
        (["--model", model, "--nbest", "3", "--format", "jsonl"], "needs --search prefix_beam"),
    ):
        assert decode.main([*options, *wavs]) == 2
        assert message in capsys.readouterr().err


def test_nbest_of_segments(
    wavs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Several segments have a list each; in one it is the recording's."""
    model = talkative_model(tmp_path / "talkative.safetensors", quiet=0.3)
    options = ["--model", str(model), "--search", "prefix_beam", "--format", "jsonl"]
    options += ["--endpoint-ms", "40", wavs[0]]
    assert decode.main([*options, "--nbest", "2"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert len(line["segments"]) > 1
    assert "nbest" not in line
    for segment in line["segments"]:
        assert segment["nbest"][0]["text"] == segment["text"]
        assert len(segment["nbest"]) == 2
    assert decode.main(options) == 0
    line = json.loads(capsys.readouterr().out)
    assert all(
        segment.keys() == {"text", "start", "end", "context"} for segment in line["segments"]
    )


@pytest.mark.parametrize("chunk_ms", ["full", "320"])
def test_align_finds_the_words_that_decode_does(
    chunk_ms: str, model: str, wavs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The text that greedy search hears has the times of its likeliest path."""
    options = ["--model", model, "--chunk-ms", chunk_ms, "--format", "json"]

    def shown() -> tuple[str, list[tuple[str, float, float]]]:
        found = json.loads(capsys.readouterr().out)
        return found["text"], [(w["text"], w["start"], w["end"]) for w in found["words"]]

    assert decode.main([*options, wavs[0]]) == 0
    text, words = shown()
    assert words
    for case in (text, f"  {text}\n"):
        assert align.main([*options, wavs[0], "--text", case]) == 0
        assert shown() == (text, words)
    if chunk_ms == "full":  # which is the default
        del options[2:4]
        assert align.main([*options, wavs[0], "--text", text]) == 0
        assert shown() == (text, words)


def test_align_a_manifest(
    model: str, wavs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What cannot be aligned is named, and why; the others are."""
    texts = {"good": "ab cd", "odd": "ab!", "long": "ab" * 100, "none": None, "empty": " "}
    rows = [{"id": name, "audio": "a.wav", "text": text} for name, text in texts.items()]
    rows += [{"id": "part", "audio": "a.wav", "text": "ab", "start": 1.0, "duration": 0.5}]
    rows += [{"id": "missing", "audio": "no.wav", "text": "ab"}]
    manifest = write_manifest(tmp_path / "m.jsonl", *rows)
    assert align.main(["--model", model, "--manifest", str(manifest), "--format", "jsonl"]) == 1
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


def test_align_lines_of_a_script_without_spaces(
    wavs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their ends are no spaces, which the labels lack; control: a space in the text is refused."""
    model = str(tmp_path / "zh.safetensors")
    save_model(model, a_file(CharTokenizer(list("零一二三四五六七八九"))))
    arguments = ["--model", model, wavs[0]]
    assert align.main([*arguments, "--text", "一二\n三四\r\n五"]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[4] for line in shown.splitlines()] == [*"一二三四五"]
    assert align.main([*arguments, "--text", "一二三四五"]) == 0
    assert capsys.readouterr().out == shown
    assert align.main([*arguments, "--text", "一二 三"]) == 1
    assert "not in the vocabulary: ' '" in capsys.readouterr().err


def test_align_one_file(model: str, wavs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert align.main(["--model", model, wavs[0], "--text", "ab cd"]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[4] for line in shown.splitlines()] == ["ab", "cd"]
    assert align.main(["--model", model, "--text", "ab"]) == 2
    assert "--text needs an audio file" in capsys.readouterr().err
    assert align.main(["--model", model, wavs[0], "--text", ""]) == 1
    assert "the text to align is missing or empty" in capsys.readouterr().err


def test_an_alignment_is_what_one_call_gives(model: str, wavs: list[str]) -> None:
    """The search that knows its text, in packets and at once."""
    from asrkit.search.forced_alignment import ForcedAlignment

    recognizer = asrkit.load(model)
    recognizer = recognizer.with_search(ForcedAlignment(recognizer.tokenizer.encode("ab cd")))
    samples = speech(2.0)
    session = recognizer.start()
    for i in range(0, len(samples), 3000):
        assert session.accept(samples[i : i + 3000]).words == ()
    assert timed(session.finish()) == timed(recognizer.transcribe(samples))
    (batched,) = recognizer.transcribe_batch([samples])
    assert timed(batched) == timed(recognizer.transcribe(samples))


def test_one_bad_recording_leaves_the_others(
    model: str, wavs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is wrong with a line or its file, those around it have their transcripts."""
    (tmp_path / "text.wav").write_text("no audio")
    bad: list[dict[str, object]] = [
        {"start": 1e308}, {"start": 5.0}, {"audio": "x" * 5000}, {"audio": "x" * 4000},
        {"audio": "text.wav"}, {"audio": "a\0b.wav"}, {"num_channels": 10**9}, {"text": "\udc00"},
    ]  # fmt: skip
    good = {"id": "first", "audio": "a.wav", "text": "no"}
    lines = [good, *(good | {"id": f"bad{i}"} | keys for i, keys in enumerate(bad))]
    manifest = write_manifest(tmp_path / "m.jsonl", *lines, good | {"id": "last"})
    arguments = ["--model", model, "--manifest", str(manifest), "--format", "jsonl"]
    assert decode.main(arguments) == 1
    shown = capsys.readouterr()
    assert [json.loads(line)["id"] for line in shown.out.splitlines()] == ["first", "last"]
    problems = [line for line in shown.err.splitlines() if line.startswith("asrkit decode: ")]
    assert len(problems) == len(bad) + 1
    assert "in 2 of 2 recordings" in problems.pop()
    assert max(map(len, problems)) < 800
    assert align.main([*arguments[:-1], "ctm"]) == 1
    problems = [line for line in capsys.readouterr().err.splitlines() if "asrkit align: " in line]
    assert len(problems) >= len(bad)


def test_a_batch_that_fails_has_its_good_recordings(
    model: str, wavs: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    together = Recognizer.transcribe_batch

    def particular(self: Recognizer, batch: list[np.ndarray]) -> list[Result]:
        if any(len(samples) == 2 * 16000 for samples in batch):
            raise UserError("not that one")
        return together(self, batch)

    monkeypatch.setattr(Recognizer, "transcribe_batch", particular)
    assert decode.main(["--model", model, *wavs]) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith(f"asrkit decode: {wavs[0]}: not that one\n")
    assert shown.out.startswith(wavs[1])


def test_any_name_has_a_file_of_its_own(
    model: str, wavs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ids longer than a file's name may be, and with what acts on a terminal; bytes of no UTF-8."""
    ids = ["ä" * 300, "ä" * 299 + "b", "a" * 191 + "ä" * 10, "up\x1b[2J\n"]
    lines = ({"id": id_, "audio": "a.wav"} for id_ in ids)
    manifest = str(write_manifest(tmp_path / "m.jsonl", *lines))
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/a\xff.wav")
    Path(wavs[0]).rename(odd)
    Path(odd).with_name("a.wav").write_bytes(Path(odd).read_bytes())
    arguments = ["--model", model, "--manifest", manifest, odd]
    assert decode.main([*arguments, "--output-dir", str(tmp_path / "out")]) == 0
    names = [path.name for path in (tmp_path / "out").glob("*.txt")]
    assert len(names) == 5
    assert all(len(name.encode()) < 220 and name.isprintable() for name in names)
    capsys.readouterr()
    assert decode.main(arguments) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith(f"{tmp_path}/a\\udcff.wav\t")
    assert shown[-1].startswith("up\\x1b[2J\\n\t")


def test_a_file_is_named_once(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert decode.main(["--model", model, "nope.wav"]) == 1
    assert capsys.readouterr().err == "asrkit decode: nope.wav does not exist\n"
    assert align.main(["--model", model, "nope.wav", "--text", "a"]) == 1
    assert capsys.readouterr().err == "asrkit align: nope.wav does not exist\n"


def test_a_text_far_from_the_model_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Speech at 0.6 of its speed is not what the model learned; the recording itself is."""
    own = FOLDER / "speech" / "command.flac"
    samples, rate = soundfile.read(own, dtype="float32")
    far = tmp_path / "far.wav"
    soundfile.write(
        far, np.interp(np.arange(0, len(samples), 0.6), range(len(samples)), samples), rate
    )
    line = "the model may not know this language, these words or this sound\n"
    for command in ("decode", "stream"):
        assert run(command, "--model", "small-en-alnum", "--format", "jsonl", far) == 0
        shown = capsys.readouterr()
        assert re.search(rf"mean confidence [2-6]\d %: {line}", shown.err)
        assert all(json.loads(each) for each in shown.out.splitlines())
        assert run(command, "--model", "small-en-alnum", "--format", "jsonl", own) == 0
        assert "confidence" not in capsys.readouterr().err
    assert run("decode", "--model", "small-en-alnum", own, far, own.with_name("call.flac")) == 0
    assert f" % in 1 of 3 recordings: {line}" in capsys.readouterr().err


def test_a_text_is_far_below_a_mean_confidence() -> None:
    sure, unsure = (Word("a", 0.0, 0.1, confidence) for confidence in (0.9, 0.3))
    assert sureness([unsure, unsure, sure]) == pytest.approx(0.5)
    assert sureness([unsure]) is sureness([]) is None  # a word says too little
    assert (far_from_model([0.5]) or "").startswith("mean confidence 50 %: ")
    assert "60 % in 2 of 4 recordings" in (far_from_model([0.5, 0.7, None, 0.69]) or "")
    assert far_from_model([0.7, None]) is None
