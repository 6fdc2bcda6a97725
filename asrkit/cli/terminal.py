"""Output of `asrkit stream`: lines of final text, and below them a line that is redrawn.

A server may send any text, so characters that control a terminal are escaped.
"""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from asrkit.errors import acts, harmless
from asrkit.runtime import Result, Segment
from asrkit.text.graphemes import clusters, columns

GREY, PLAIN = "\x1b[90m", "\x1b[0m"  # for text that may still change


class Screen:
    """Results as text on standard output. On a terminal, the line of open segments is redrawn."""

    def __init__(self) -> None:
        self.redraw = sys.stdout.isatty()
        self.speakers: Sequence[str] = ()  # of the channels, if there are several
        self.open: dict[int, str] = {}  # text of each channel's open segment
        self.segments: dict[int, int] = {}  # number of segments that were printed
        self.status = ""  # the meter, printed before the text

    def __enter__(self) -> "Screen":
        return self

    def __exit__(self, *error: object) -> None:
        if self.redraw and (self.text or self.status):  # stopped: keep the open text
            self.clear()
            print(harmless(self.text), end="\n" if self.text else "", flush=True)

    @property
    def text(self) -> str:
        """The text of all open segments."""
        return "  ".join(self.named(channel, text) for channel, text in self.open.items() if text)

    def named(self, channel: int, text: str) -> str:
        """Return a text after the name of its speaker."""
        return f"{self.speakers[channel]}: {text}" if self.speakers else text

    def partial(self, results: Sequence[Result]) -> None:
        """Print new segments of all channels, and the open ones that changed."""
        self.final(results)
        for channel, result in enumerate(results):
            if result.open_text != self.open.get(channel, ""):
                self.open[channel] = result.open_text
                self.show_open(channel, result)

    def final(self, results: Sequence[Result]) -> None:
        """Print new segments, each on a line."""
        for channel, result in enumerate(results):
            for segment in result.segments[self.segments.get(channel, 0) :]:
                self.open[channel] = self.status = ""
                self.show_ended(channel, segment)
            self.segments[channel] = len(result.segments)

    def show_open(self, channel: int, result: Result) -> None:
        self.draw()

    def show_ended(self, channel: int, segment: Segment) -> None:
        self.clear()
        print(harmless(self.named(channel, segment.text)), flush=True)
        if self.text:  # of other channels
            self.draw()

    def note(self, text: str) -> None:
        """Print a line on standard error, above the open line."""
        self.clear()
        print(text, file=sys.stderr, flush=True)
        self.draw()

    def meter(self, level: str, behind: float) -> None:
        """Show the input level, and by how many seconds decoding is behind."""
        self.status = f"{level} {behind:.1f} s behind  " if behind >= 1 else f"{level} "
        self.draw()

    def draw(self) -> None:
        """Draw the end of the open line that fits into the terminal."""
        if not self.redraw:
            return
        room = shutil.get_terminal_size().columns - 1 - len(self.status)
        line = tail(harmless(self.text), room)
        line = f"{GREY}{line}{PLAIN}" if line and "NO_COLOR" not in os.environ else line
        print(f"\r\x1b[K{self.status}{line}", end="", flush=True)

    def clear(self) -> None:
        if self.redraw:
            print("\r\x1b[K", end="", flush=True)


class JsonLines(Screen):
    """Results on standard output, a JSON object per line, for programs.

    {"type": "partial", "text": …, "start": …, "end": …, "words": [{"text": …, "start": …, …}]}

    "partial" is the open segment, which may still change. "final" is a segment that has ended. It
    also has the "context" of the network that recognised it, "full" or a chunk such as "640 ms" or
    "320+160 ms". Times are in seconds from the start of the stream, "start" that of the first word.
    Lines of several channels also have "channel" and "speaker".
    """

    def __init__(self) -> None:
        super().__init__()
        self.redraw = False

    def show_open(self, channel: int, result: Result) -> None:
        end = result.segments[-1].spoken_end if result.segments else 0.0
        words = result.words[sum(len(each.words) for each in result.segments) :]
        self.show(channel, "partial", Segment(self.open[channel], words, end, end))

    def show_ended(self, channel: int, segment: Segment) -> None:
        self.show(channel, "final", segment, context=segment.context)

    def show(self, channel: int, kind: str, segment: Segment, **more: Any) -> None:
        if self.speakers:
            more |= {"channel": channel, "speaker": self.speakers[channel]}
        words = [word.as_json() for word in segment.words]
        times = {"start": segment.spoken, "end": segment.spoken_end}
        line = {"type": kind, "text": segment.text, **times, "words": words, **more}
        text = json.dumps(line, ensure_ascii=False)
        print("".join(json.dumps(each)[1:-1] if acts(each) else each for each in text), flush=True)


def tail(text: str, width: int) -> str:
    """Return a text of at most `width` columns: the whole text, or … and its end."""
    near = text[-8 * max(1, width) :]  # enough, even if most characters are marks without a width
    if near == text and columns(text) <= width:
        return text
    start, room = len(text), width - 1  # without …
    for part in reversed(clusters(near)):
        if (room := room - columns(part)) < 0:
            break
        start -= len(part)
    return "…" + text[start:] if width > 0 else ""
