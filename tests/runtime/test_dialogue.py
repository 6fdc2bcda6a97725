"""Calls whose channels are speakers: their turns, and every format of them read back."""

import json
from pathlib import Path

import numpy as np
import pytest
import srt
import webvtt
from praatio import textgrid

from asrkit.runtime import Word
from asrkit.runtime.formats import FORMATS, PAUSE_SECONDS, Recording, passages, write
from asrkit.runtime.subtitles import LINE_COLUMNS


def said(*spans: tuple[str, float, float]) -> list[Word]:
    return [Word(text, start, end, 0.5) for text, start, end in spans]


AGENT = said(("how", 0.1, 0.3), ("many", 0.3, 0.6), ("<thanks>", 1.4, 1.8), ("bye", 4.0, 4.25))
CALLER = said(("two", 0.8, 1.2), ("please", 1.2, 1.6), ("bye", 4.1, 4.5))
CALL = [
    Recording(AGENT, "a call", 5.0, {}, 0, "the agent"),
    Recording(CALLER, "a call", 5.0, {}, 1, "R&D"),
]


def random_call(seed: int, count: int = 40) -> list[list[Word]]:
    draw = np.random.default_rng(seed)
    call = []
    for _ in range(int(draw.integers(1, 4))):
        pauses = draw.choice([0.0, 0.125, 0.5, 1.5], count)
        ends = np.cumsum(pauses + draw.integers(1, 8, count) / 8)
        starts = [0.0 + pauses[0], *(ends[:-1] + pauses[1:])]
        call.append([Word("w", *map(float, span), 1.0) for span in zip(starts, ends, strict=True)])
    return call


def plainly(speakers: list[list[Word]]) -> list[tuple[float, int, int]]:
    """Start, speaker and number of words of each turn, from all pairs of words."""
    found = []
    for number, words in enumerate(speakers):
        others = [word for each in speakers if each is not words for word in each]
        first = 0
        for i in range(1, len(words) + 1):
            before, after = words[i - 1], words[min(i, len(words) - 1)]
            long = after.start - before.end >= PAUSE_SECONDS
            if (
                i == len(words)
                or long
                or any(before.end <= other.start and other.end <= after.start for other in others)
            ):
                found.append((words[first].start, number, i - first))
                first = i
    return sorted(found)


@pytest.mark.parametrize("seed", range(20))
def test_turns_are_those_of_the_rule(seed: int) -> None:
    call = random_call(seed)
    found = passages(call)
    assert [(turn.start, turn.channel, len(turn.words)) for turn in found] == plainly(call)
    for number, words in enumerate(call):  # nothing is lost where turns overlap
        assert [w for turn in found if turn.channel == number for w in turn.words] == words


def test_control_of_turns_without_the_other_speaker() -> None:
    calls = [random_call(seed) for seed in range(20)]
    apart = [sorted(turn for words in call for turn in plainly([words])) for call in calls]
    assert [len(plainly(call)) for call in calls] != [len(each) for each in apart]


def test_the_text_is_a_dialogue() -> None:
    assert write("txt", CALL) == (
        "00:00:00.100–00:00:00.600 the agent: how many\n"
        "00:00:00.800–00:00:01.600 R&D: two please\n"
        "00:00:01.400–00:00:01.800 the agent: <thanks>\n"
        "00:00:04.000–00:00:04.250 the agent: bye\n"
        "00:00:04.100–00:00:04.500 R&D: bye\n"
    )


def test_json_has_speakers() -> None:
    whole, lines = json.loads(write("json", CALL)), write("jsonl", CALL).splitlines()
    assert whole["channels"] == [json.loads(line) for line in lines]
    assert [(each["channel"], each["speaker"], each["text"]) for each in whole["channels"]] == [
        (0, "the agent", "how many <thanks> bye"), (1, "R&D", "two please bye"),
    ]  # fmt: skip
    assert [turn["text"] for turn in whole["turns"]] == [
        "how many", "two please", "<thanks>", "bye", "bye",
    ]  # fmt: skip
    assert whole["turns"][1] == {
        "channel": 1, "speaker": "R&D", "start": 0.8, "end": 1.6, "text": "two please",
    }  # fmt: skip


def test_subtitles_name_the_speaker() -> None:
    found = list(srt.parse(write("srt", CALL)))
    assert [each.content for each in found] == [
        "the agent: how many <thanks>", "R&D: two please", "the agent: bye", "R&D: bye",
    ]  # fmt: skip
    captions = webvtt.from_string(write("vtt", CALL)).captions
    assert [each.voice for each in captions] == ["the agent", "R&amp;D", "the agent", "R&amp;D"]
    assert captions[0].text == "how many &lt;thanks&gt;"
    many = said(*((f"word{i}", i / 4, i / 4 + 0.25) for i in range(100)))
    call = [Recording(many, "x", None, {}, channel, "n" * 20) for channel in (0, 1)]
    texts = [each.content for each in srt.parse(write("srt", call))]
    assert all(text.startswith("n" * 20 + ": word") for text in texts)
    assert max(len(line) for text in texts for line in text.split("\n")) <= LINE_COLUMNS


def test_tables_have_the_channel() -> None:
    ctm = [line.split() for line in write("ctm", CALL).splitlines()]
    assert [(row[0], row[1], row[4]) for row in ctm[3:5]] == [
        ("a_call", "1", "bye"), ("a_call", "2", "two"),
    ]  # fmt: skip
    rttm = [line.split() for line in write("rttm", CALL).splitlines()]
    assert {len(row) for row in rttm} == {10}
    assert [row[1:5] + row[7:8] for row in rttm[:2]] == [
        ["a_call", "1", "0.100", "0.500", "the_agent"],
        ["a_call", "2", "0.800", "0.800", "R&D"],
    ]  # fmt: skip
    assert write("csv", CALL).splitlines()[2] == "a call,0.800,1.600,R&D,two please"


def test_textgrid_has_a_tier_for_each_channel(tmp_path: Path) -> None:
    (tmp_path / "x.TextGrid").write_text(write("textgrid", CALL), encoding="utf-8")
    grid = textgrid.openTextgrid(str(tmp_path / "x.TextGrid"), False, reportingMode="error")
    assert grid.tierNames == ("the agent", "R&D")
    assert [entry.label for entry in grid.getTier("R&D").entries] == ["two", "please", "bye"]


@pytest.mark.parametrize("form", FORMATS)
def test_channels_of_different_recordings_are_apart(form: str) -> None:
    """Only the next channel of one id belongs to a recording; nobody speaks in an empty one."""
    one, two = CALL
    if FORMATS[form].joins:
        other = two._replace(id="another call")
        expected = write(form, [one]) + write(form, [other]).removeprefix(FORMATS[form].header)
        assert write(form, [one, other]) == expected
        assert write(form, [one, other]) != write(form, [one, two]) or form in ("jsonl", "csv")
    assert write(form, [each._replace(words=[]) for each in CALL]) is not None
