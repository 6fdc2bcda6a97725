"""Timed words as text, JSON and subtitles: one function per format, by name in FORMATS."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from asrkit.audio.samples import channel_name
from asrkit.errors import UserError, shown
from asrkit.runtime.subtitles import apart, cues, milliseconds
from asrkit.runtime.words import Word, joined

PAUSE_SECONDS = 1.0  # pause that ends a passage, whoever speaks


class Recording(NamedTuple):
    """The contents of a file for one recording, or for one of its channels."""

    words: Sequence[Word]
    id: str = ""
    duration: float | None = None  # seconds of the recording; the last word's end if None
    more: Mapping[str, Any] = {}  # additional keys for JSON
    channel: int | None = None  # number of the channel, from 0; None for all
    speaker: str = ""

    @property
    def text(self) -> str:
        return joined(self.words)

    @property
    def name(self) -> str:
        """Name of the speaker, or of the channel."""
        return self.speaker or channel_name(self.channel or 0)


Call: TypeAlias = Sequence[Recording]  # the channels of a recording; most recordings have one


class Format(NamedTuple):
    write: Callable[[Call], str]  # writes one recording
    joins: bool = True  # whether several recordings in a row are a valid file


def write(form: str, recordings: Sequence[Recording]) -> str:
    """Return a whole file. Neighbours of one id are the channels of a recording.

    Raises:
        UserError: for an unknown format, or for several recordings in a format that holds one.
    """
    if form not in FORMATS:
        raise UserError(f"format must be one of {', '.join(FORMATS)}, got {shown(form)}")
    groups = calls(recordings)
    if len(groups) > 1 and not FORMATS[form].joins:
        raise UserError(f"a file of {form} holds one recording, got {len(groups)}")
    return "".join(map(FORMATS[form].write, groups))


def passages(call: Call) -> list[Recording]:
    """Return the passages of all channels by their starts. Those of two speakers may overlap.

    A passage is a channel with a part of its words. A pause of PAUSE_SECONDS ends it, and so does a
    shorter one in which another speaker begins and ends a word.
    """
    spoken = [(word, number) for number, channel in enumerate(call) for word in channel.words]
    ordered: list[tuple[int, list[Word]]] = []  # the passages' channels and words
    latest: dict[int, list[Word]] = {}  # latest passage of each channel
    broken: dict[int, float] = {}  # end of another's first word after this passage
    for word, number in sorted(spoken, key=lambda pair: (pair[0].start, pair[1])):
        last = latest.get(number)
        pause = PAUSE_SECONDS if last is None else round(word.start - last[-1].end, 3)
        if last is None or pause >= PAUSE_SECONDS or broken.get(number, word.end) <= word.start:
            latest[number] = last = []
            ordered.append((number, last))
        last.append(word)
        broken.pop(number, None)
        for other, passage in latest.items():
            if other != number and word.start >= passage[-1].end:
                broken[other] = min(word.end, broken.get(other, word.end))
    return [call[number]._replace(words=words) for number, words in ordered]


def calls(items: Sequence[Any]) -> list[list[Any]]:
    """Group the channels of a recording: neighbours of one `id` whose `channel` counts up."""
    groups: list[list[Any]] = []
    for item in items:
        last = groups[-1][-1] if groups else None
        if last and last.id == item.id and item.channel and last.channel == item.channel - 1:
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups


def txt(call: Call) -> str:
    """Write the text, or for several channels a line for each passage."""
    if len(call) == 1:
        return f"{call[0].text}\n"
    return "".join(
        f"{clock(milliseconds(part.words[0].start), '.')}–"
        f"{clock(milliseconds(part.words[-1].end), '.')} {part.name}: {part.text}\n"
        for part in passages(call)
    )


def jsonl(call: Call) -> str:
    return "".join(f"{json.dumps(as_object(channel), ensure_ascii=False)}\n" for channel in call)


def indented(call: Call) -> str:
    """Write a recording, or its channels and their passages, as one indented object."""
    value = as_object(call[0])
    if len(call) > 1:
        channels = [as_object(channel) for channel in call]
        value = {"id": call[0].id, "turns": passages_as_json(call), "channels": channels}
    return f"{json.dumps(value, ensure_ascii=False, indent=1)}\n"


def passages_as_json(call: Call) -> list[dict[str, Any]]:
    return [
        {
            **of_channel(part), "start": part.words[0].start, "end": part.words[-1].end,
            "text": part.text,
        } for part in passages(call)
    ]  # fmt: skip


def of_channel(recording: Recording) -> dict[str, Any]:
    """Return the keys that tell a channel from the others of its recording."""
    channel = {} if recording.channel is None else {"channel": recording.channel}
    return channel | ({"speaker": recording.speaker} if recording.speaker else {})


def as_object(recording: Recording) -> dict[str, Any]:
    words = [word.as_json() for word in recording.words]
    about = {"id": recording.id, **of_channel(recording)}
    return {**about, "text": recording.text, "words": words, **recording.more}


def textgrid(call: Call) -> str:
    """Write Praat's long text format: a tier for each channel, pauses as empty intervals."""
    tiers = [intervals(channel.words) for channel in call]
    ends = [end for tier in tiers for _, end, _ in tier]
    durations = [milliseconds(channel.duration or 0.0) for channel in call]
    last = max(1, *durations, *ends)
    extent = f"xmin = 0\nxmax = {last / 1000:.3f}"
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', "", extent]
    lines += ["tiers? <exists>", f"size = {len(tiers)}", "item []:"]
    for item, (channel, tier) in enumerate(zip(call, tiers, strict=True), start=1):
        name = channel.name.replace('"', '""') if len(call) > 1 else "words"
        if last > (end := tier[-1][1] if tier else 0):
            tier.append((end, last, ""))
        lines += [f"item [{item}]:", 'class = "IntervalTier"', f'name = "{name}"', extent]
        lines += [f"intervals: size = {len(tier)}"]
        for number, (start, stop, text) in enumerate(tier, start=1):
            lines += [f"intervals [{number}]:", f"xmin = {start / 1000:.3f}"]
            lines += [f"xmax = {stop / 1000:.3f}", f'text = "{text}"']
    return "\n".join(lines) + "\n"


def intervals(words: Sequence[Word]) -> list[tuple[int, int, str]]:
    """Return start, end and text of words and of the pauses before them, in ms, for a TextGrid."""
    spans: list[tuple[int, int, str]] = []
    end = 0
    for (start, stop), word in zip(apart(words), words, strict=True):
        if start > end:
            spans.append((end, start, ""))
        spans.append((start, stop, word.text.replace('"', '""')))
        end = stop
    return spans


def srt(call: Call) -> str:
    """Write SubRip, which has no escape characters; speakers are named in the text."""
    names = [f"{channel.name}:" if len(call) > 1 else "" for channel in call]
    rows = zip(call, names, strict=True)
    entries = (cue for channel, name in rows for cue in cues(channel.words, name))
    return "".join(
        f"{number}\n{clock(start, ',')} --> {clock(end, ',')}\n{text}\n\n"
        for number, (start, end, text) in enumerate(sorted(entries), start=1)
    )


def vtt(call: Call) -> str:
    """Write WebVTT (W3C); speakers are voices."""
    escape = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
    entries = sorted(
        (*cue, f"<v {channel.name.translate(escape)}>" if len(call) > 1 else "")
        for channel in call for cue in cues(channel.words)
    )  # fmt: skip
    return "WEBVTT\n\n" + "".join(
        f"{clock(start, '.')} --> {clock(end, '.')}\n{voice}{text.translate(escape)}\n\n"
        for start, end, text, voice in entries
    )


def clock(ms: int, point: str) -> str:
    """Return hours:minutes:seconds, and thousandths after `point`."""
    seconds, ms = divmod(ms, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{point}{ms:03}"


FORMATS = {
    "txt": Format(txt),
    "jsonl": Format(jsonl),
    "json": Format(indented, joins=False),
    "srt": Format(srt, joins=False),
    "vtt": Format(vtt, joins=False),
    "textgrid": Format(textgrid, joins=False),
}
