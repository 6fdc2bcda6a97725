"""Timed words as text, JSON, tables and subtitles: one function per format, by name in FORMATS.

Limits of subtitles are Netflix's (Timed Text Style Guide: English, and General Requirements). The
length of a pause is the BBC's (Subtitle Guidelines, "Gaps"): shorter ones are not left empty.
"""

import csv
import io
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from asrkit.errors import UserError, shown
from asrkit.runtime.words import Word, joined
from asrkit.text.graphemes import clusters, columns

LINE_COLUMNS, MAX_LINES = 42, 2
MIN_MS, MAX_MS = 833, 7000  # display time of a cue
PAUSE_SECONDS = 1.0  # pause that ends a cue
SENTENCE_ENDS = (".", "?", "!", "…", "。", "？", "！")


class Recording(NamedTuple):
    """The contents of a file for one recording."""

    words: Sequence[Word]
    id: str = ""
    duration: float | None = None  # seconds of the recording; the last word's end if None
    more: Mapping[str, Any] = {}  # additional keys for JSON

    @property
    def text(self) -> str:
        return joined(self.words)


class Format(NamedTuple):
    write: Callable[[Recording], str]  # writes one recording
    header: str = ""  # beginning of a file
    joins: bool = True  # whether several recordings in a row are a valid file


def write(form: str, recordings: Sequence[Recording]) -> str:
    """Return a whole file.

    Raises:
        UserError: for an unknown format, or for several recordings in a format that holds one.
    """
    if form not in FORMATS:
        raise UserError(f"format must be one of {', '.join(FORMATS)}, got {shown(form)}")
    if len(recordings) > 1 and not FORMATS[form].joins:
        raise UserError(f"a file of {form} holds one recording, got {len(recordings)}")
    return FORMATS[form].header + "".join(map(FORMATS[form].write, recordings))


def txt(recording: Recording) -> str:
    return f"{recording.text}\n"


def jsonl(recording: Recording) -> str:
    return f"{json.dumps(as_object(recording), ensure_ascii=False)}\n"


def indented(recording: Recording) -> str:
    return f"{json.dumps(as_object(recording), ensure_ascii=False, indent=1)}\n"


def as_object(recording: Recording) -> dict[str, Any]:
    words = [word.as_json() for word in recording.words]
    return {"id": recording.id, "text": recording.text, "words": words, **recording.more}


def rows(recording: Recording) -> str:
    """Write CSV under CSV_HEADER, seconds with three decimals."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(
        (recording.id, word.text, f"{word.start:.3f}", f"{word.end:.3f}", f"{word.confidence:.4f}")
        for word in recording.words
    )
    return file.getvalue()


CSV_HEADER = "id,word,start,end,confidence\n"


def ctm(recording: Recording) -> str:
    """Write NIST's CTM (SCTK, infmts.htm): recording, channel, start, duration, word, confidence.

    Spaces in an id become "_". An id that begins with ";;", like a comment, gets "_" before it.
    """
    name = "_".join(recording.id.split()) or "-"
    if name.startswith(";;"):
        name = f"_{name}"
    lines = []
    for word in recording.words:
        start, end = milliseconds(word.start), milliseconds(word.end)
        times = f"{start / 1000:.3f} {(end - start) / 1000:.3f}"
        lines.append(f"{name} 1 {times} {word.text} {word.confidence:.4f}\n")
    return "".join(lines)


def textgrid(recording: Recording) -> str:
    """Write Praat's long text format: one tier, pauses as empty intervals."""
    intervals: list[tuple[int, int, str]] = []
    end = 0
    for (start, stop), word in zip(apart(recording.words), recording.words, strict=True):
        if start > end:
            intervals.append((end, start, ""))
        intervals.append((start, stop, word.text.replace('"', '""')))
        end = stop
    last = max(milliseconds(recording.duration or 0.0), 1)
    if last > end:
        intervals.append((end, last, ""))
    last = max(last, end)
    span = f"xmin = 0\nxmax = {last / 1000:.3f}"
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', "", span]
    lines += ["tiers? <exists>", "size = 1", "item []:", "item [1]:", 'class = "IntervalTier"']
    lines += ['name = "words"', span, f"intervals: size = {len(intervals)}"]
    for number, (start, stop, text) in enumerate(intervals, start=1):
        lines += [f"intervals [{number}]:", f"xmin = {start / 1000:.3f}"]
        lines += [f"xmax = {stop / 1000:.3f}", f'text = "{text}"']
    return "\n".join(lines) + "\n"


def srt(recording: Recording) -> str:
    """Write SubRip, which has no escape characters."""
    blocks = (
        f"{number}\n{clock(start, ',')} --> {clock(end, ',')}\n{text}\n\n"
        for number, (start, end, text) in enumerate(cues(recording.words), start=1)
    )
    return "".join(blocks)


def vtt(recording: Recording) -> str:
    """Write WebVTT (W3C), to follow its header."""
    escape = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
    return "".join(
        f"{clock(start, '.')} --> {clock(end, '.')}\n{text.translate(escape)}\n\n"
        for start, end, text in cues(recording.words)
    )


def cues(words: Sequence[Word]) -> list[tuple[int, int, str]]:
    """Return subtitles without overlap: start and end in ms, and one or two lines."""
    groups = grouped([part for word in words for part in parts(word)])
    times = apart(group[0]._replace(end=group[-1].end) for group in groups)
    nexts = [*(start for start, _ in times), 1 << 62][1:]
    found = []
    for group, (start, end), after in zip(groups, times, nexts, strict=True):
        end = min(max(end, start + MIN_MS), start + MAX_MS, after)
        found.append((start, end, "\n".join(lines_of(group) or ())))
    return found


def grouped(words: Sequence[Word]) -> list[list[Word]]:
    """Group words into subtitles: as many as fit, up to a pause or the end of a sentence.

    If neither comes in time, the subtitle ends at the longest pause of its second half.
    """
    groups, first = [], 0
    while first < len(words):
        last = first + 1  # end of the subtitle, exclusive
        while last < len(words) and not ends_cue(words[last - 1], words[last]):
            if not fits(words[first : last + 1]):
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


def parts(word: Word) -> list[Word]:
    """Split a word that is longer than a line into parts of whole clusters; each part gets its
    share of the time."""
    if columns(word.text) <= LINE_COLUMNS:
        return [word]
    lines, width = [""], 0
    for cluster in clusters(word.text):
        if lines[-1] and width + columns(cluster) > LINE_COLUMNS:
            lines.append("")
            width = 0
        lines[-1] += cluster
        width += columns(cluster)
    counts = [0, *itertools.accumulate(map(len, lines))]
    at = [word.start + (word.end - word.start) * count / counts[-1] for count in counts]
    return [
        Word(text, at[i], at[i + 1], word.confidence).with_space(word.spaced and not i)
        for i, text in enumerate(lines)
    ]


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


def clock(ms: int, point: str) -> str:
    """Return hours:minutes:seconds, and thousandths after `point`."""
    seconds, ms = divmod(ms, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{point}{ms:03}"


FORMATS = {
    "txt": Format(txt),
    "jsonl": Format(jsonl),
    "json": Format(indented, joins=False),
    "srt": Format(srt, joins=False),
    "vtt": Format(vtt, "WEBVTT\n\n", joins=False),
    "ctm": Format(ctm),
    "csv": Format(rows, CSV_HEADER),
    "textgrid": Format(textgrid, joins=False),
}
