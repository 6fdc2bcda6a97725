"""Texts with times beside the audio: SRT, WebVTT, TextGrid, labels of HTK, Audacity and Whisper."""

import html
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from asrkit.data.corpora.entry import CorpusError, lines_of
from asrkit.data.manifest import log_once
from asrkit.errors import shown

LONGEST = 1 << 24  # bytes of a file
TIME = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{2})[.,](\d{1,3})"
TIMES = re.compile(rf"\s*{TIME}\s*-->\s*{TIME}(?:\s.*)?")
PRINTED = re.compile(rf"\[{TIME} --> {TIME}\]\s*(.*)")  # a line of Whisper's console
LANGUAGE = re.compile(r"Detect(?:ing|ed) language.*")  # its lines before these
VOICE, MARKUP = re.compile(r"<v(?:\.[^\s<>]*)?\s([^<>]*)>"), re.compile(r"<[^<>]*>|\{\\[^{}]*\}")
LABEL = re.compile(r"(\d+(?:\.\d+)?)\s+(\d+(?:\.\d+)?)(?:\s+(.*))?")
SPECTRAL = re.compile(r"\\\t.*")  # Audacity's line of the frequencies of the label before it
HTK_SECOND = 1e7  # HTK counts 100 ns
TOKEN = re.compile(
    r'"(?:[^"]|"")*"|<exists>|(?<![\w\[.-])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w\].])'
)
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
    if ending == ".json":
        return transcript(path)
    lines = [*lines_of(path, LONGEST)]
    match ending:
        case ".srt" | ".vtt":
            return subtitles(lines)
        case ".textgrid":
            return textgrid(path, "\n".join(line for _, line in lines))
        case ".tsv":
            return milliseconds(path, [line for _, line in lines])
    return printed(path, [line for _, line in lines])


def subtitles(lines: list[tuple[int, str]]) -> list[Cue]:
    """Return the cues of SRT or WebVTT; lines are numbered, and empty ones are left out."""
    found: list[tuple[re.Match[str], list[str]]] = []
    before = 0
    is_open = False
    for number, line in lines:
        if times := TIMES.fullmatch(line):
            if is_open and number == before + 1 and found[-1][1][-1:]:
                last = found[-1][1]  # a number of the next cue, without an empty line before it
                if last[-1].strip().isdecimal():
                    last.pop()
            found.append((times, []))
            is_open = True
        elif number > before + 1:
            is_open = False
        elif is_open:
            found[-1][1].append(line)
        before = number
    return [cue_of(times, "\n".join(texts)) for times, texts in found]


def cue_of(times: re.Match[str], text: str) -> Cue:
    parts = times.groups(default="0")
    start, end = (
        int(hours) * 3600 + int(minutes) * 60 + int(seconds) + float(f"0.{fraction}")
        for hours, minutes, seconds, fraction in (parts[:4], parts[4:8])
    )
    voice = VOICE.search(text)
    return Cue(html.unescape(MARKUP.sub("", text)), start, end, voice and voice[1])


def transcript(path: Path) -> list[Cue]:
    """Return the segments of Whisper's JSON; else the text of an object with a text."""
    if path.stat().st_size > LONGEST:
        raise CorpusError(f"{path}: must have at most {LONGEST} bytes")

    def cue(values: Mapping[str, Any], start: float = 0.0, end: float | None = None) -> Cue:
        speaker = values.get("speaker")
        return Cue(values["text"].strip(), start, end, None if speaker is None else str(speaker))

    try:
        values = json.loads(path.read_bytes())
        if "segments" not in values:
            return [cue(values)]
        return [cue(each, float(each["start"]), float(each["end"])) for each in values["segments"]]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        raise CorpusError(
            f"{path}: must be a JSON object with a text, or with segments of start, end and text"
        ) from None


def milliseconds(path: Path, lines: list[str]) -> list[Cue]:
    """Return the lines of Whisper's TSV, whose times are milliseconds."""
    header, *rows = [line.split("\t", 2) for line in lines] or [[]]
    if header != ["start", "end", "text"] or not all(
        len(row) == 3 and row[0].isdecimal() and row[1].isdecimal() for row in rows
    ):
        raise CorpusError(f"{path}: must have the columns start, end and text, in milliseconds")
    return [Cue(text, float(start) / 1000, float(end) / 1000) for start, end, text in rows]


def printed(path: Path, lines: list[str]) -> list[Cue]:
    """Return the lines that Whisper prints on a console; else those of `labels`."""
    lines = [line.strip() for line in lines]
    times = [PRINTED.fullmatch(line) for line in lines]
    if not any(times):
        return labels(path, lines)
    for line, found in zip(lines, times, strict=True):
        if not found and not LANGUAGE.fullmatch(line):
            raise no_times(path, line)
    return [cue_of(found, found[9]) for found in times if found]


def no_times(path: Path, line: str) -> CorpusError:
    return CorpusError(f"{path}: a line lacks the times of the others: {shown(line, 40)}")


def labels(path: Path, lines: list[str]) -> list[Cue]:
    """Return the labels of lines that all begin with two times; else one text of all lines."""
    spoken = [line for line in lines if not SPECTRAL.fullmatch(line)]
    found = [LABEL.fullmatch(line) for line in spoken]
    times = [each.groups(default="") for each in found if each]
    if not all(found) and 2 * len(times) > len(found):
        raise no_times(path, spoken[found.index(None)])
    if not found or not all(found):
        return [Cue("\n".join(lines))]
    is_htk = all(cell.isdecimal() for start, end, _ in times for cell in (start, end))
    unit = HTK_SECOND if is_htk else 1.0
    return [Cue(text, float(start) / unit, float(end) / unit) for start, end, text in times]


def textgrid(path: Path, text: str) -> list[Cue]:
    """Return the intervals of a TextGrid, of the tiers that have utterances.

    If there are several such tiers, their names are the speakers. If all tiers have words or
    sounds, the words are the text of the whole file.
    """
    tiers = list(tiers_of(path, iter(TOKEN.findall(text))))
    chosen = [each for each in tiers if not NOT_UTTERANCES.fullmatch(each[0])]
    words = [each for each in tiers if "word" in each[0].lower()]
    if chosen:
        for name, _ in (each for each in tiers if each not in chosen):
            log_once(f"tiers {name!r} of TextGrids have no utterances and are not read")
        return [
            cue._replace(speaker=name if len(chosen) > 1 else None)
            for name, cues in chosen
            for cue in cues
            if cue.text.strip()
        ]
    if not words:
        raise CorpusError(f"{path}: has no tier of utterances or words")
    return [Cue(" ".join(cue.text for cue in words[0][1]))]


def tiers_of(path: Path, tokens: Iterator[str]) -> Iterator[tuple[str, list[Cue]]]:
    """Yield the name and the intervals of each interval tier."""
    try:
        kinds = [next(tokens) for _ in range(6)]  # file type, class, times, <exists>, number
        if kinds[0] != '"ooTextFile"' or kinds[4] != "<exists>":
            raise CorpusError(f"{path}: is not a TextGrid in text form of Praat")
        for _ in range(int(kinds[5])):
            kind, name, _, _, size = (next(tokens) for _ in range(5))
            if kind == '"IntervalTier"':
                rows = [(next(tokens), next(tokens), next(tokens)) for _ in range(int(size))]
                yield unquoted(name), [Cue(unquoted(c), float(a), float(b)) for a, b, c in rows]
            else:
                log_once("tiers of points in TextGrids are not read")
                for _ in range(2 * int(size)):
                    next(tokens)
    except (StopIteration, RuntimeError, ValueError) as error:
        if isinstance(error, CorpusError):
            raise
        raise CorpusError(f"{path}: is not a whole TextGrid of Praat") from None


def unquoted(token: str) -> str:
    return token[1:-1].replace('""', '"')
