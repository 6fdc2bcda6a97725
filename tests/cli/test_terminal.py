"""What a terminal shows of a stream: one line, redrawn, as wide as there is room."""

import itertools
import json
import sys

import numpy as np
import pytest

from asrkit.cli.terminal import JsonLines, Screen, tail
from asrkit.runtime import Result, Segment, Word
from asrkit.text.graphemes import columns

LETTERS = "abc 好あ한e\u0301"


@pytest.mark.parametrize("seed", range(50))
def test_a_tail_fits_and_wastes_no_room(seed: int) -> None:
    draw = np.random.default_rng(seed)
    text = "".join(draw.choice(list(LETTERS), size=draw.integers(0, 60)))
    size = columns(text)
    for width in range(-1, 70):
        shown = tail(text, width)
        if size <= width:
            assert shown == text
            continue
        assert shown[:1] in ("…", "")
        assert text.endswith(shown[1:])
        taken = columns(shown)
        assert taken <= max(0, width)
        assert width - taken <= 1  # half of a wide letter


def result(ended: list[str], text: str) -> Result:
    """Of segments that have ended, and of the open segment."""
    words = {part: tuple(Word(word, 0.0, 0.1, 1.0) for word in part.split()) for part in ended}
    segments = tuple(Segment(part, words[part], 0.0, 1.0) for part in ended)
    spoken = (*itertools.chain(*words.values()), *(Word(w, 0.0, 0.1, 1.0) for w in text.split()))
    return Result(" ".join([*ended, text]), spoken, False, segments)


def test_notes_and_final_lines_stay_above_the_open_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", sys.stdout)
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Screen()
    screen.meter("  -∞ dBFS ", behind=2.5)
    screen.partial([result([], "one two three four")])
    screen.note("a note")
    screen.partial([result(["one two three four five"], "")])
    screen.partial([result(["one two three four five", "six"], "seven")])
    clear = "\r\x1b[K"
    meter, open_line = "  -∞ dBFS  2.5 s behind  ", "  -∞ dBFS  2.5 s behind  …our"
    assert capsys.readouterr().out == (
        f"{clear}{meter}{clear}{open_line}{clear}a note\n{clear}{open_line}"
        f"{clear}one two three four five\n{clear}six\n{clear}seven"
    )


def test_open_segments_of_all_channels_share_the_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Screen()
    screen.speakers = ["agent", "caller"]
    screen.partial([result([], "one"), result([], "")])
    screen.partial([result([], "one"), result([], "two")])
    screen.partial([result(["one"], ""), result([], "two")])
    clear = "\r\x1b[K"
    assert capsys.readouterr().out == (
        f"{clear}agent: one{clear}agent: one  caller: two{clear}agent: one\n{clear}caller: two"
    )


@pytest.mark.parametrize("kind", [Screen, JsonLines])
def test_a_text_cannot_act_on_the_terminal(
    kind: type[Screen], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may send anything; joiners and spaces of scripts stay."""
    hostile, script = "\x1b]0;x\x07\x9b2J\u202eab\u2028", "می\u200cخواهم\u3000か\xa0👩\u200d💻"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    screen = kind()
    for text in (hostile, script):
        screen.partial([result([], text)])
    screen.final([result([hostile, script], "")])
    out = capsys.readouterr().out.replace("\r\x1b[K", "")
    assert not set("\x1b\x07\x9b\u202e\u2028").intersection(out)
    assert script in out
    if isinstance(screen, JsonLines):
        texts = [json.loads(line)["text"] for line in out.splitlines()]
        assert texts[-2:] == [hostile, script]
