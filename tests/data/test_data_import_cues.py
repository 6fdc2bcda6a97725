"""Subtitles, TextGrids, labels and LibriSpeech as sources of `asrkit data import`."""

from pathlib import Path

import pytest

from asrkit.data.corpora.cues import read_cues
from asrkit.data.corpora.source import CorpusError
from tests.data.test_data_import import Output, imported, sound

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
CUES = [("Hello there", 0.1, 0.3), ("world & co", 0.3, 0.9), ("good", 0.9, 1.0)]
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


def cues_of(text: bytes, name: str, folder: Path) -> list[tuple[str, float, float, str | None]]:
    (folder / name).write_bytes(text)
    return [(" ".join(each.text.split()), each.start, round(each.end or 0.0, 3), each.speaker)
            for each in read_cues(folder / name)]  # fmt: skip


def test_cues(tmp_path: Path) -> None:
    """Subtitles, with speakers in WebVTT, and TextGrids."""
    for name, text in (("a.srt", SRT), ("a.SRT", SRT.replace("\n", "\r\n"))):
        assert cues_of(text.encode(), name, tmp_path) == [(*each, None) for each in CUES]
    speakers = ("Anna", "Bob", None)
    expected = [(*each, name) for each, name in zip(CUES, speakers, strict=True)]
    assert cues_of(VTT.encode(), "a.vtt", tmp_path) == expected
    for text in (LONG.encode(), LONG.encode("utf-16")):
        assert cues_of(text, "a.TextGrid", tmp_path) == [
            ('Hello "there" 2', 0.1, 0.3, "anna"), ("world", 0.3, 0.9, "OTHER"),
        ]  # fmt: skip


def test_texts_beside_recordings(
    tmp_path: Path, capsys: Output, caplog: pytest.LogCaptureFixture
) -> None:
    texts = {
        "a.srt": SRT, "b.lab": "fine\nand long", "d.TextGrid": "no",
        "c.TextGrid": LONG.replace("size = 1\n", "size = 12\n"),
        "e.srt": "no cue", "f.srt": SRT.replace("00:00:01,000", "00:00:09,000"),
        "bb.TextGrid": LONG.replace("anna", "words").replace("OTHER", "phones"),
        "cc.TextGrid": LONG[:300],
    }  # fmt: skip
    for name, text in texts.items():
        sound((tmp_path / "in" / name).with_suffix(".wav"), 1.0 + len(text) / 16000)
        (tmp_path / "in" / name).write_text(text)
    (tmp_path / "in/a.txt").write_text("no cue")
    (tmp_path / "in/a.json").write_text("{}")
    found = imported(tmp_path / "out", "folder", tmp_path / "in", status=1)
    assert sorted(found) == ["a-0001", "a-0002", "a-0003", "b", "f-0001", "f-0002"]
    assert [found["a-0002"][key] for key in ("text", "start", "duration")] == [
        "world & co", 0.3, 0.6,
    ]  # fmt: skip
    errors = capsys.readouterr().err
    assert "not read, by their names or as links: 1, " in caplog.text
    for line in (
        "left out 1, file with the name of another: a.txt", "left out 5, text that cannot be read",
        "c.TextGrid: is not a whole TextGrid: save ", "bb.TextGrid: has no tier of utterances",
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
    found = imported(tmp_path / "out", "auto", root, status=1)
    assert {(each["speaker"], each["split"]) for each in found.values()} == {
        ("19", "train"), ("26", "train"), ("84", "dev"),
    }  # fmt: skip
    assert found["84-198-0001"]["text"] == "CHAPTER ONE"
    assert "left out 3, text without audio: " in capsys.readouterr().err
    part = imported(tmp_path / "part", "auto", root / "train-clean-5", status=1)
    assert {each["split"] for each in part.values()} == {"train", "dev"}  # of its own it has none
