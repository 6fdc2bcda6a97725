"""Every format read back by another's parser; subtitles keep their limits; calls of speakers."""

import html
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import srt
import webvtt
from praatio import textgrid
from praatio.utilities.errors import PraatioException

from asrkit import UserError
from asrkit.runtime import Result, Word, formats
from asrkit.runtime.formats import FORMATS, PAUSE_SECONDS, Recording, passages, write
from asrkit.runtime.stream import duration
from asrkit.runtime.subtitles import LINE_COLUMNS, MAX_MS, cues
from asrkit.text.graphemes import clusters, columns, units


def random_words(seed: int, count: int, zero: bool = False) -> list[Word]:
    """Words of many lengths, with short and long pauses and what formats must escape."""
    draw = np.random.default_rng(seed)
    special = ['"quoted"', "a,b", "-->", "<i>", "R&D", "end.", "ça", "而对楼市", "x" * 100, "'"]
    words, at = [], 0.0
    for _ in range(count):
        at += float(draw.choice([0.0, 0.04, 0.2, 0.6, 3.0], p=[0.3, 0.3, 0.25, 0.1, 0.05]))
        length = 0.0 if zero and draw.random() < 0.3 else float(draw.uniform(0.04, 0.6))
        plain = "".join(draw.choice(list("abcdefg"), draw.integers(1, 12)))
        text = str(draw.choice(special)) if draw.random() < 0.15 else plain
        words.append(Word(text, at, at + length, float(draw.uniform(0, 1))))
        at += length
    return words


HARD = {
    "none": [],
    "one": [Word("yes", 0.0, 0.4, 1.0)],
    "long": [Word("x" * 300, 1.0, 4.0, 0.5), Word("y", 4.0, 4.1, 0.5)],
    "slow": [Word("slow", 1.0, 30.0, 0.5), Word("y", 30.0, 30.1, 0.5)],
    "zero": [Word(text, 1.0, 1.0, 1.0) for text in "abc"],
    "zero apart": random_words(1, 300, zero=True),
    "hour": [Word(f"w{i}", i * 0.36, i * 0.36 + 0.36, 1.0) for i in range(10000)],
} | {f"random {seed}": random_words(seed, 200) for seed in range(20)}


@pytest.fixture(params=HARD, ids=str)
def words(request: pytest.FixtureRequest) -> list[Word]:
    return HARD[request.param]


def flat(text: str) -> str:
    """Without spaces."""
    return "".join(text.split())


def check_subtitles(found: list[tuple[float, float, str]], words: list[Word]) -> None:
    """Start and end in seconds, and text, as a parser read them."""
    assert flat("".join(text for _, _, text in found)) == flat("".join(w.text for w in words))
    edges = list(itertools.chain(*((start, end) for start, end, _ in found)))
    assert edges == sorted(edges)
    for start, end, text in found:
        assert 0 < end - start <= MAX_MS / 1000 + 1e-9
        assert 1 <= len(text.split("\n")) <= 2
        assert all(len(line) <= LINE_COLUMNS or " " not in line for line in text.split("\n"))


def test_srt_is_read_back_by_its_parser(words: list[Word]) -> None:
    found = list(srt.parse(write("srt", [Recording(words)])))
    assert [each.index for each in found] == list(range(1, len(found) + 1))
    times = [(each.start.total_seconds(), each.end.total_seconds()) for each in found]
    check_subtitles([(*span, each.content) for span, each in zip(times, found, strict=True)], words)


def test_vtt_is_read_back_by_its_parser(words: list[Word]) -> None:
    text = write("vtt", [Recording(words)])
    found = webvtt.from_string(text).captions
    spans = [(in_seconds(c.start), in_seconds(c.end), html.unescape(c.raw_text)) for c in found]
    check_subtitles(spans, words)
    payload = [line for line in text.splitlines() if " --> " not in line]
    assert not any("<" in line or "-->" in line for line in payload)


def in_seconds(clock: str) -> float:
    hours, minutes, seconds = clock.split(":")
    return 3600 * int(hours) + 60 * int(minutes) + float(seconds)


def test_control_subtitles_that_break_a_limit_are_noticed() -> None:
    words = [Word("a", 0.0, 1.0, 1.0), Word("b", 1.0, 2.0, 1.0)]
    good = [(0.0, 1.0, "a"), (1.0, 2.0, "b")]
    check_subtitles(good, words)
    for bad in (
        [(0.0, 1.2, "a"), (1.0, 2.0, "b")],
        [(0.0, 8.0, "a b")],
        [(0.0, 2.0, "a")],
        [(0.0, 0.0, "a"), (1.0, 2.0, "b")],
        [(0.0, 2.0, "a\n\nb")],
        [(0.0, 2.0, "a" + " " * LINE_COLUMNS + "b")],
    ):
        with pytest.raises(AssertionError):
            check_subtitles(bad, words)


def said(*texts: str, pauses: dict[int, float] | None = None) -> list[Word]:
    """Words of 0.3 s, a pause before some."""
    words, at = [], 0.0
    for i, text in enumerate(texts):
        at += (pauses or {}).get(i, 0.0)
        words.append(Word(text, at, at + 0.3, 1.0))
        at += 0.3
    return words


def test_subtitles_break_at_pauses_and_sentence_ends() -> None:
    """At pauses of a second, at the ends of sentences, else at the longest pause; not elsewhere."""
    assert cues(said("one", "two", pauses={1: 0.9})) == [(0, 1500, "one two")]
    assert cues(said("one", "two", pauses={1: 1.0})) == [(0, 833, "one"), (1300, 2133, "two")]
    assert cues(said("one.", "two")) == [(0, 300, "one."), (300, 1133, "two")]  # until the next
    twenty = [f"word{i:02}" for i in range(20)]  # 7 characters with its space
    found = [text for *_, text in cues(said(*twenty, pauses={9: 0.2}))]
    assert found[0] == " ".join(twenty[:4]) + "\n" + " ".join(twenty[4:9])
    assert cues(said(*twenty))[0][2] == " ".join(twenty[:6]) + "\n" + " ".join(twenty[6:12])
    two_lines = cues(said(*twenty[:8]))[0][2]
    assert two_lines == " ".join(twenty[:4]) + "\n" + " ".join(twenty[4:8])


def test_json_is_read_back_as_the_words(words: list[Word]) -> None:
    one = Recording(words, "x", more={"reference": "r"})
    lines = write("jsonl", [one, one]).splitlines()
    expected = {"id": "x", "text": " ".join(w.text for w in words), "reference": "r"}
    for found in (*map(json.loads, lines), json.loads(write("json", [one]))):
        assert [Word(**word) for word in found.pop("words")] == words
        assert found == expected
    assert len(lines) == 2


def test_textgrid_is_read_back_by_its_parser(words: list[Word], tmp_path: Path) -> None:
    end = words[-1].end if words else 0.0
    path = tmp_path / "x.TextGrid"
    path.write_text(write("textgrid", [Recording(words, duration=end + 2.5)]), encoding="utf-8")
    grid = textgrid.openTextgrid(str(path), includeEmptyIntervals=False, reportingMode="error")
    tier = grid.getTier("words")
    assert grid.maxTimestamp == pytest.approx(end + 2.5, abs=0.0006)
    assert [entry.label for entry in tier.entries] == [word.text for word in words]
    shift = 0.001 * (1 + sum(word.start == word.end for word in words))
    for entry, word in zip(tier.entries, words, strict=True):
        assert (entry.start, entry.end) == pytest.approx((word.start, word.end), abs=shift)
    whole = textgrid.openTextgrid(str(path), includeEmptyIntervals=True).getTier("words").entries
    edges = [whole[0].start, *(entry.end for entry in whole)]
    assert [entry.start for entry in whole] == edges[:-1]
    assert edges[0] == 0
    text = write("textgrid", [Recording(HARD["one"])]).replace("xmax = 0.400", "xmax = 0.000")
    path.write_text(text)
    with pytest.raises(PraatioException):  # the control: an interval without length
        textgrid.openTextgrid(str(path), includeEmptyIntervals=True)


def test_one_file_of_several_recordings() -> None:
    one, two = Recording([Word("a", 0, 1, 1)], "1"), Recording([], "2")
    assert write("txt", [one, two]) == "a\n\n"
    for form in (form for form in FORMATS if not FORMATS[form].joins):
        with pytest.raises(UserError, match=f"a file of {form} holds one recording, got 2"):
            write(form, [one, two])
    with pytest.raises(UserError, match=r"format must be one of txt, jsonl, .*, got 'doc'"):
        write("doc", [one])


def test_a_result_writes_itself() -> None:
    words = (Word("yes", 0.5, 1.0, 0.25), Word("no", 1.0, 1.5, 1.0))
    result = Result("yes no", words, True)
    assert str(result) == "yes no"
    for form in FORMATS:
        assert result.to(form, "x", 2.0) == formats.write(form, [Recording(words, "x", 2.0)])


def units_of(text: str, step: float = 0.2) -> list[Word]:
    """A word for each unit of a text, one after another."""
    found: list[Word] = []
    for part in text.split():
        for number, unit in enumerate(units(part)):
            at = step * len(found)
            found.append(Word(unit, at, at + step, 0.9).with_space(not number))
    return found


@pytest.mark.parametrize(
    "text", ["你好，世界。" * 30, "今日はコーヒーを" * 20, "ที่ไปน้ำ" * 40 + " ก"]
)
def test_subtitles_of_scripts_without_spaces(text: str) -> None:
    """Cues with the times of their characters, lines of at most 42 columns, no cluster divided."""
    words = units_of(text)
    found = cues(words)
    assert len(found) > 3
    lines = [line for _, _, cue in found for line in cue.splitlines()]
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert max(map(columns, lines)) <= LINE_COLUMNS
    assert [part for line in lines for part in clusters(line) if part != " "] == [
        part for part in clusters(text) if part != " "
    ]
    begun = 0  # characters before a cue
    sizes = itertools.accumulate((len(w.text) for w in words[:-1]), initial=0)
    at = dict(zip(sizes, words, strict=True))
    for start, _, cue in found:
        assert start == round(1000 * at[begun].start)
        begun += len("".join(cue.split()))


@pytest.mark.parametrize("form", FORMATS)
def test_no_format_puts_spaces_between_characters(form: str) -> None:
    words = units_of("你好 世界")
    recording = Recording(words, "x", 2.0)
    assert recording.text == "你好 世界"
    text = write(form, [recording])
    if form == "textgrid":
        assert "你好" not in text
        assert all(word.text in text for word in words)
    else:
        assert "你好 世界" in text
    if form == "jsonl":
        given = json.loads(text)["words"]
        assert [word.get("spaced", True) for word in given] == [True, False, True, False]
        assert "spaced" not in given[0]


@pytest.mark.parametrize("form", FORMATS)
def test_the_end_of_a_recording_is_its_last_millisecond(form: str) -> None:
    """A recording of 3.8 s ended at 3.799; of any whole number of milliseconds it is exact."""
    for ms in range(3000, 4000):
        word = Word("a", 0.0, duration(16 * ms), 1.0)
        shown = write(form, [Recording([word], "x", word.end)])
        end = f"{ms / 1000:.3f}"
        expected = {
            "txt": "a", "json": f'"end": {ms / 1000}', "jsonl": f'"end": {ms / 1000}',
            "srt": f"--> 00:00:0{end.replace('.', ',')}", "vtt": f"--> 00:00:0{end}",
            "textgrid": f"xmax = {end}",
        }  # fmt: skip
        assert expected[form] in shown
    # A part of a millisecond is left out, so that no word ends after the audio.
    assert [duration(size) for size in (0, 60_799, 60_815, 60_816)] == [0.0, 3.799, 3.8, 3.801]


SPANS = {
    "the agent": [
        ("how", 0.1, 0.3),
        ("many", 0.3, 0.6),
        ("<thanks>", 1.4, 1.8),
        ("bye", 4.0, 4.25),
    ],
    "R&D": [("two", 0.8, 1.2), ("please", 1.2, 1.6), ("bye", 4.1, 4.5)],
}
CALL = [
    Recording([Word(*span, 0.5) for span in spans], "a call", 5.0, {}, channel, speaker)
    for channel, (speaker, spans) in enumerate(SPANS.items())
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


def test_turns_hold_each_word_once() -> None:
    """Also where they overlap; a turn has no pause."""
    for seed in range(20):
        call = random_call(seed)
        found = passages([Recording(words, channel=i) for i, words in enumerate(call)])
        starts = [turn.words[0].start for turn in found]
        assert starts == sorted(starts)
        for number, words in enumerate(call):
            assert [w for turn in found if turn.channel == number for w in turn.words] == words
        pairs = (pair for turn in found for pair in itertools.pairwise(turn.words))
        assert all(after.start - before.end < PAUSE_SECONDS for before, after in pairs)


def test_text_json_and_textgrid_have_the_speakers(tmp_path: Path) -> None:
    assert write("txt", CALL) == (
        "00:00:00.100–00:00:00.600 the agent: how many\n"
        "00:00:00.800–00:00:01.600 R&D: two please\n"
        "00:00:01.400–00:00:01.800 the agent: <thanks>\n"
        "00:00:04.000–00:00:04.250 the agent: bye\n"
        "00:00:04.100–00:00:04.500 R&D: bye\n"
    )
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
    (tmp_path / "x.TextGrid").write_text(write("textgrid", CALL), encoding="utf-8")
    grid = textgrid.openTextgrid(str(tmp_path / "x.TextGrid"), False, reportingMode="error")
    assert grid.tierNames == ("the agent", "R&D")
    assert [entry.label for entry in grid.getTier("R&D").entries] == ["two", "please", "bye"]


def test_subtitles_name_the_speaker() -> None:
    found = list(srt.parse(write("srt", CALL)))
    assert [each.content for each in found] == [
        "the agent: how many <thanks>", "R&D: two please", "the agent: bye", "R&D: bye",
    ]  # fmt: skip
    captions = webvtt.from_string(write("vtt", CALL)).captions
    assert [each.voice for each in captions] == ["the agent", "R&amp;D", "the agent", "R&amp;D"]
    assert captions[0].text == "how many &lt;thanks&gt;"
