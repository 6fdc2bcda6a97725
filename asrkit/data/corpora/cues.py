"""Texts with times beside the audio: SRT, WebVTT and TextGrid."""

import html
import io
import re
from pathlib import Path
from typing import NamedTuple

from asrkit.data.corpora.source import CorpusError, lines_of
from asrkit.data.manifest import log_once
from asrkit.errors import reason
from asrkit.extras import need

LONGEST = 1 << 24  # bytes of a file
TIMED = re.compile(r"-->.*\n(?!\s*\d+\s*\n.*-->)[^\n]")  # a line of times that a text follows
PLACEMENT = re.compile(r"\{\\[^{}]*\}")  # marks of SubStation in SRT, such as {\an8}
QUOTED = r'"((?:[^"]|"")*)"'
TIER = re.compile(rf'class = "(\w+)"\s+name = {QUOTED}')
SECONDS = r"(\d+(?:\.\d+)?(?:e-\d+)?)"
INTERVAL = re.compile(rf"xmin = {SECONDS}\s+xmax = {SECONDS}\s+text = {QUOTED}")
NOT_UTTERANCES = re.compile(r".*(?:words?|phones?|phonemes?|syllables?|segments?)", re.IGNORECASE)


class Cue(NamedTuple):
    """A text with its place in the audio; the end is None for a text of the whole file."""

    text: str
    start: float = 0.0
    end: float | None = None
    speaker: str | None = None


def read_cues(path: Path) -> list[Cue]:
    """Return the texts of a file beside the audio, by the ending of its name."""
    ending = path.suffix.lower()
    lines = [*lines_of(path, LONGEST)]
    if ending == ".textgrid":
        return textgrid(path, "\n".join(line for _, line in lines))
    if ending in (".srt", ".vtt"):
        return subtitles(path, lines)
    return [Cue("\n".join(line for _, line in lines))] if lines else []


def subtitles(path: Path, lines: list[tuple[int, str]]) -> list[Cue]:
    """Return the cues of SRT or WebVTT; lines are numbered, and empty ones are left out."""
    need("webvtt")
    import webvtt

    spoken = dict(lines)
    text = "\n".join(spoken.get(number, "") for number in range(1, max(spoken, default=0) + 1))
    try:
        captions = webvtt.from_buffer(io.StringIO(text), path.suffix[1:].lower())
    except webvtt.errors.MalformedFileError as error:
        raise CorpusError(f"{path}: must be SRT or WebVTT: {reason(error)}") from None
    times = len(TIMED.findall(text))  # webvtt skips cues of another form
    count = sum(bool(each.lines) for each in captions.captions)
    if count < times:
        raise CorpusError(
            f"{path}: {count} of {times} cues can be read: a cue of SRT is a number, a line "
            "00:00:01,000 --> 00:00:02,000 and the text; WebVTT has 00:00:01.000"
        )
    return [
        Cue(
            html.unescape(PLACEMENT.sub("", each.text)),
            each.start_time.in_milliseconds() / 1000,
            each.end_time.in_milliseconds() / 1000,
            each.voice,
        )
        for each in captions.captions
    ]


def textgrid(path: Path, text: str) -> list[Cue]:
    """Return the intervals of a TextGrid, of the tiers that have utterances.

    If there are several such tiers, their names are the speakers.
    """
    chosen: list[tuple[str, list[Cue]]] = []
    _, *parts = TIER.split(text)
    for kind, quoted, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        name = unquoted(quoted)
        cues = [Cue(unquoted(c), float(a), float(b)) for a, b, c in INTERVAL.findall(body)]
        is_whole = re.search(rf"intervals: size = {len(cues)}\s", body)
        if kind == "IntervalTier" and not is_whole:
            raise CorpusError(f"{path}: is not a whole TextGrid: save it as text with Praat")
        if kind != "IntervalTier" or NOT_UTTERANCES.fullmatch(name):
            log_once(f"tiers {name!r} of TextGrids have no utterances and are not read")
            continue
        chosen.append((name, cues))
    if not chosen:
        raise CorpusError(f"{path}: has no tier of utterances in Praat's long text form")
    return [
        cue._replace(speaker=name if len(chosen) > 1 else None)
        for name, cues in chosen
        for cue in cues
        if cue.text.strip()
    ]


def unquoted(text: str) -> str:
    return text.replace('""', '"')
