"""Subtitles: words in cues of one or two lines, with the times at which they are shown.

Limits are Netflix's (Timed Text Style Guide: English, and General Requirements). The length of a
pause is the BBC's (Subtitle Guidelines, "Gaps"): shorter ones are not left empty.
"""

from collections.abc import Iterable, Sequence

from asrkit.runtime.words import Word, joined
from asrkit.text.graphemes import columns

LINE_COLUMNS, MAX_LINES = 42, 2
MIN_MS, MAX_MS = 833, 7000  # display time of a cue
PAUSE_SECONDS = 1.0  # pause that ends a cue
SENTENCE_ENDS = (".", "?", "!", "…", "。", "？", "！")


def cues(words: Sequence[Word], speaker: str = "") -> list[tuple[int, int, str]]:
    """Return subtitles without overlap: start and end in ms, and one or two lines.

    A word that is longer than a line has a line of its own.

    Args:
        words: words of one speaker.
        speaker: first word of each subtitle.
    """
    groups = grouped(words, speaker)
    times = apart(group[0]._replace(end=group[-1].end) for group in groups)
    nexts = [*(start for start, _ in times), 1 << 62][1:]
    subtitles = []
    for group, (start, end), after in zip(groups, times, nexts, strict=True):
        end = min(max(end, start + MIN_MS), start + MAX_MS, after)
        lines = lines_of(named(group, speaker)) or lines_of(group) or [joined(group)]
        subtitles.append((start, end, "\n".join(lines)))
    return subtitles


def named(words: Sequence[Word], speaker: str) -> list[Word]:
    """Return the words of a subtitle after the name of its speaker, if it has one."""
    if not speaker:
        return list(words)
    first = words[0]
    name = Word(speaker, first.start, first.start, 1.0)
    return [name, first.with_space(True), *words[1:]]


def grouped(words: Sequence[Word], speaker: str = "") -> list[list[Word]]:
    """Group words into subtitles: as many as fit, up to a pause or the end of a sentence.

    If neither comes in time, the subtitle ends at the longest pause of its second half.
    """
    groups, first = [], 0
    while first < len(words):
        last = first + 1  # end of the subtitle, exclusive
        while last < len(words) and not ends_cue(words[last - 1], words[last]):
            if not fits(named(words[first : last + 1], speaker)):
                middle = (first + last + 1) // 2
                # Of equally long pauses the last one, so that the cue holds more words.
                last = max(range(middle, last + 1), key=lambda i: (gap(words, i), i))
                break
            last += 1
        groups.append(list(words[first:last]))
        first = last
    return groups


def ends_cue(word: Word, after: Word) -> bool:
    return after.start - word.end >= PAUSE_SECONDS or word.text.endswith(SENTENCE_ENDS)


def gap(words: Sequence[Word], i: int) -> float:
    """Return the pause before a word in seconds, rounded to milliseconds."""
    return round(words[i].start - words[i - 1].end, 3)


def fits(words: Sequence[Word]) -> bool:
    long = words[-1].end - words[0].start > MAX_MS / 1000
    return not long and lines_of(words) is not None


def lines_of(words: Sequence[Word]) -> list[str] | None:
    """Return one line, or two lines of similar length; None if two do not suffice."""
    ends = [columns(words[0].text)]  # columns of a line up to the end of each word
    for word in words[1:]:
        ends.append(ends[-1] + word.spaced + columns(word.text))
    if ends[-1] <= LINE_COLUMNS:
        return [joined(words)]
    if ends[-1] > MAX_LINES * LINE_COLUMNS + 1:
        return None
    rests = (ends[-1] - end - word.spaced for end, word in zip(ends, words[1:], strict=False))
    widths = list(zip(ends, rests, strict=False))
    fitting = [i for i, pair in enumerate(widths, start=1) if max(pair) <= LINE_COLUMNS]
    at = min(fitting, key=lambda i: abs(widths[i - 1][0] - widths[i - 1][1]), default=None)
    return None if at is None else [joined(words[:at]), joined(words[at:])]


def apart(words: Iterable[Word]) -> list[tuple[int, int]]:
    """Return starts and ends in ms without overlap, each at least 1 ms long."""
    spans, at = [], 0
    for word in words:
        start = max(milliseconds(word.start), at)
        at = max(milliseconds(word.end), start + 1)
        spans.append((start, at))
    return spans


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
