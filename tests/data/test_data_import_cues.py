"""Subtitles, TextGrids, labels and LibriSpeech as sources of `asrkit data import`."""

from pathlib import Path

import pytest

from asrkit.data.corpora.cues import read_cues
from asrkit.data.corpora.source import CorpusError
from tests.data.test_data_import import Output, imported, sound
from tests.running import run

SRT = """1
00:00:00,100 --> 00:00:00,300
<i>Hello</i>
there

2
00:00:00,300 --> 00:00:00,900
{\\an8}world &amp; co
3
00:00:00,900 --> 00:00:01,000
good
"""
VTT = """WEBVTT

NOTE not a cue
00:00.000

STYLE
::cue {}

first
00:00.100 --> 00:00.300 align:start
<v Anna>Hello</v>
there

00:00:00.300 --> 00:00:00.900
<v Bob>world &amp; co

00:00:00.900 --> 00:00:01.000
<c.yellow>good</c>
"""
CUES = [("Hello there", 0.1, 0.2), ("world & co", 0.3, 0.6), ("good", 0.9, 0.1)]
LONG = """File type = "ooTextFile"
Object class = "TextGrid"

xmin = 0
xmax = 1
tiers? <exists>
size = 3
item []:
    item [1]:
        class = "IntervalTier"
        name = "anna"
        xmin = 0
        xmax = 1
        intervals: size = 3
        intervals [1]:
            xmin = 0
            xmax = 0.1
            text = ""
        intervals [2]:
            xmin = 0.1
            xmax = 0.3
            text = "Hello ""there"" 2"
        intervals [3]:
            xmin = 0.3
            xmax = 1
            text = " "
    item [2]:
        class = "TextTier"
        name = "clicks"
        xmin = 0
        xmax = 1
        points: size = 1
        points [1]:
            number = 0.5
            mark = "x"
    item [3]:
        class = "IntervalTier"
        name = "OTHER"
        xmin = 0
        xmax = 1
        intervals: size = 1
        intervals [1]:
            xmin = 0.3
            xmax = 0.9
            text = "world"
"""
WORDS = LONG.replace("anna", "words").replace("OTHER", "phones")


def cues_of(text: bytes, ending: str, tmp_path: Path) -> list[tuple[str, float | None, float]]:
    path = sound(tmp_path / "in/a.wav", 1.0)
    path.with_suffix(ending).write_bytes(text)
    run("data", "import", "auto", tmp_path / "in", "--output", tmp_path / "out", "--dev", 0)
    found = imported(tmp_path / "out", "train")
    return [(each["text"], each.get("start"), each["duration"]) for each in found.values()]


@pytest.mark.parametrize(
    ("text", "ending"),
    [
        (SRT, ".srt"), (VTT, ".vtt"), (SRT.replace("\n", "\r\n"), ".SRT"),
    ],
)  # fmt: skip
def test_cues_are_parts_of_the_file(text: str, ending: str, tmp_path: Path) -> None:
    assert cues_of(text.encode(), ending, tmp_path) == CUES


def test_speakers_of_subtitles_and_tiers(tmp_path: Path) -> None:
    assert cues_of(VTT.encode(), ".vtt", tmp_path) == CUES
    found = imported(tmp_path / "out", "train")
    assert [each.get("speaker") for each in found.values()] == ["Anna", "Bob", None]
    assert [*found] == ["a-0001", "a-0002", "a-0003"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_textgrids(encoding: str, tmp_path: Path) -> None:
    """Also the short form, whose lines have values alone."""
    expected = [('Hello "there" 2', 0.1, 0.2), ("world", 0.3, 0.6)]
    assert cues_of(LONG.encode(encoding), ".TextGrid", tmp_path) == expected
    found = imported(tmp_path / "out", "train")
    assert [each["speaker"] for each in found.values()] == ["anna", "OTHER"]
    head, tiers = LONG.split("\n\n")
    kept = [line.partition("=")[2].strip() or "<exists>" * ("?" in line) for line in
            tiers.splitlines()]  # fmt: skip
    short = "\n".join([head, "", *filter(None, kept)])
    assert cues_of(short.encode(encoding), ".TextGrid", tmp_path / "short") == expected


def test_a_textgrid_of_words_is_one_text(tmp_path: Path) -> None:
    assert cues_of(WORDS.encode(), ".TextGrid", tmp_path) == [('Hello "there" 2', None, 1.0)]


def test_lines_of_a_cue_without_spaces_are_joined(tmp_path: Path) -> None:
    cue = SRT.replace("<i>Hello</i>\nthere", "<i>你好，</i>\n世界。")
    assert cues_of(cue.encode(), ".srt", tmp_path)[0][0] == "你好，世界。"
    assert cues_of("你好\n世界\n".encode(), ".txt", tmp_path / "txt")[0][0] == "你好世界"


def test_texts_that_cannot_be_used(
    tmp_path: Path, capsys: Output, caplog: pytest.LogCaptureFixture
) -> None:
    texts = {
        "a.txt": "fine", "b.lab": "also fine", "c.TextGrid": LONG[:300], "d.TextGrid": "no",
        "e.srt": "no cue", "f.srt": SRT.replace("00:00:01,000", "00:00:09,000"),
        "h.TextGrid": WORDS.replace("words", "phones"),
    }  # fmt: skip
    for name, text in texts.items():
        sound(tmp_path / "in" / name, 1.0 + len(text) / 16000, format="WAV")
        (tmp_path / "in" / name).rename((tmp_path / "in" / name).with_suffix(".wav"))
        (tmp_path / "in" / name).write_text(text)
    (tmp_path / "in/a.srt").write_text(SRT)
    (tmp_path / "in/a.json").write_text("{}")
    assert run("data", "import", "folder", tmp_path / "in", "--output", tmp_path / "out") == 1
    assert sorted(imported(tmp_path / "out")) == [
        "a-0001",
        "a-0002",
        "a-0003",
        "b",
        "f-0001",
        "f-0002",
    ]
    errors = capsys.readouterr().err
    assert "not read, by their names or as links: 1, " in caplog.text
    for line in (
        "left out 1, file with the name of another: a.txt", "left out 4, text that cannot be read",
        "c.TextGrid: is not a whole TextGrid of Praat",
        "left out 1, time outside the file: f-0003: 0.90 to 9.00 s of ",
    ):  # fmt: skip
        assert line in errors, errors


@pytest.mark.parametrize(("name", "wrong", "counts"), [
    ("a.srt", SRT, ""),
    ("a.vtt", VTT + "\n00:01.000 --> 00:02.000\n\n00:02.000 --> 00:03.000\nyes\n", ""),
    ("a.srt", SRT + "4\n00:00:02,000 --> 00:00:03,000\n5\n00:00:03,000 --> 00:00:04,000\nyes", ""),
    ("a.srt", SRT.replace("there\n\n2\n", "there\n\n"), "2 of 3"),
    ("a.srt", SRT.replace("there\n\n2\n", "there\n\n2a\n"), "2 of 3"),
    ("a.srt", SRT.replace("00:00:00", "00:00"), "0 of 3"),
    ("a.vtt", VTT.replace("00:00:00.300 ", "00:00:00,300 "), "2 of 3"),
])  # fmt: skip
def test_each_cue_is_read_or_the_file_is_refused(
    name: str, wrong: str, counts: str, tmp_path: Path
) -> None:
    """Control: whole files, also with a cue that has no text."""
    path = tmp_path / name
    path.write_text(wrong)
    if counts:
        with pytest.raises(CorpusError, match=f"{counts} cues can be read: a cue of SRT is a num"):
            read_cues(path)
    else:
        assert len(read_cues(path)) >= 3


def test_librispeech(tmp_path: Path, capsys: Output) -> None:
    root = tmp_path / "LibriSpeech"
    for part, speaker in (("train-clean-5", 19), ("train-clean-5", 26), ("dev-clean-2", 84)):
        chapter = root / part / str(speaker) / "198"
        names = [f"{speaker}-198-000{number}" for number in range(2)]
        for name in names:
            sound(chapter / f"{name}.flac")
        lines = [f"{name} CHAPTER ONE\n" for name in [*names, f"{speaker}-198-9999"]]
        (chapter / f"{speaker}-198.trans.txt").write_text("".join(lines))
    assert run("data", "import", "auto", root, "--output", tmp_path / "out") == 1
    found = imported(tmp_path / "out")
    assert {(each["speaker"], each["split"]) for each in found.values()} == {
        ("19", "train"), ("26", "train"), ("84", "dev"),
    }  # fmt: skip
    assert found["84-198-0001"]["text"] == "CHAPTER ONE"
    assert "left out 3, text without audio: " in capsys.readouterr().err
    part = root / "train-clean-5"  # without a dev part, it is divided
    assert run("data", "import", "auto", part, "--output", tmp_path / "part") == 1
    assert {each["split"] for each in imported(tmp_path / "part").values()} == {"train", "dev"}
