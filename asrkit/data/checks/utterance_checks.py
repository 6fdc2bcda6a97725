"""Checks of one utterance; each returns a message with the wrong value, or None.

A transcript becomes labels without changes. Characters that are not spoken are therefore learned as
noise, and count as errors in each score.
"""

import math
import unicodedata
from collections.abc import Callable, Sequence

from asrkit import audio
from asrkit.audio.samples import CANCELLED_DB, TOLERANCE
from asrkit.data.checks.facts import Check, Facts, Found, Rules, Severity, Signal
from asrkit.errors import shown
from asrkit.text import TextError
from asrkit.text.marks import MISREAD, marks_in, reread

# All 4645 recordings of five real corpora (an4, fsdd, yesno, librispeech-mini, kerstin) are
# above -48 dBFS. The noise of rounding to 16 bits is at -101.
SILENT_DB = -70.0
SAME = 0.5  # of the level in dB that the mix of equal channels has above that of independent ones
CLIPPED_SHARE = 0.001  # 16 samples a second at 16 kHz
JOINERS = "\u200c\u200d"  # spelling in Persian and Hindi
EXAMPLES = 3  # marks of a text in a message

Find = Callable[[Facts, Rules], str | None]


def outside_file(facts: Facts, rules: Rules) -> str | None:
    if facts.file_seconds is None:
        return None
    start = facts.utterance.start or 0.0
    end = start + (facts.utterance.duration or 0.0)
    if start < facts.file_seconds and end <= facts.file_seconds + TOLERANCE:
        return None
    return f"{start:g} to {end:g} s of a file of {facts.file_seconds:.2f} s"


def cut_off(facts: Facts, rules: Rules) -> str | None:
    if facts.signal is None:
        return None
    if noted := [each for each in facts.notes if "cut off" in each]:
        return "; ".join(noted)
    expected = facts._replace(signal=None).seconds  # from the header
    if expected is None or facts.signal.seconds >= expected - TOLERANCE:
        return None
    return f"ends after {facts.signal.seconds:.2f} of {expected:.2f} s"


def not_read(facts: Facts, rules: Rules) -> str | None:
    return "; ".join(each for each in facts.notes if "cut off" not in each) or None


def mixed(facts: Facts, rules: Rules) -> str | None:
    """Find files whose channels differ, as those of a telephone call, or cancel each other out."""
    count = facts.header.num_channels if facts.header else 1
    if facts.utterance.channel is not None or count == 1:
        return None
    level = facts.signal and facts.signal.mix_db
    if level is None:
        return f"the mean of {count} channels"
    if level < CANCELLED_DB:
        return (
            f"the mix of its {count} channels is {-level:.0f} dB below that of independent channels"
        )
    if level >= SAME * 10 * math.log10(count) or (facts.signal and silent(facts.signal)):
        return None
    return f"the mean of {count} channels that differ"


def silent(signal: Signal) -> str | None:
    if not signal.rms:
        return "all samples are equal"
    level = 20 * math.log10(signal.rms)
    return f"RMS {level:.0f} dBFS" if level < SILENT_DB else None


def empty_text(facts: Facts, rules: Rules) -> str | None:
    if rules.encode.normalize(facts.text):
        return None
    return "no text" if facts.utterance.text is None else repr(facts.text)


def unknown_symbols(facts: Facts, rules: Rules) -> str | None:
    try:
        rules.encode(facts.text)
    except TextError as error:
        return str(error)
    return None


def too_short(facts: Facts, rules: Rules) -> str | None:
    """Return why training would skip the utterance as too short; other checks cover the text."""
    if facts.seconds is None or empty_text(facts, rules) or unknown_symbols(facts, rules):
        return None
    reason = rules.encode.why_not(facts.text, int(facts.seconds * audio.SAMPLE_RATE))
    return reason and reason.removeprefix("too short: ")


def outside_limits(facts: Facts, rules: Rules) -> str | None:
    if facts.seconds is None or rules.min_seconds <= facts.seconds <= rules.max_seconds:
        return None
    return f"{facts.seconds:.2f} s, not {rules.min_seconds:g} to {rules.max_seconds:g}"


def invisible_characters(facts: Facts, rules: Rules) -> str | None:
    """Find control, format and unassigned characters, and U+FFFD, the sign of a wrong encoding."""
    text = rules.encode.normalize(facts.text)
    if text.isascii() and text.isprintable():
        return None
    odd = {c for c in text if unicodedata.category(c)[0] == "C" or c == "\ufffd"} - set(JOINERS)
    named = ", ".join(f"U+{ord(c):04X}" for c in sorted(odd))
    return f"{named} in {facts.text!r}" if odd else None


def wrong_encoding(facts: Facts, rules: Rules) -> str | None:
    """Find UTF-8 that was read as Latin-1 or Windows-1252, such as "GrÃ¼n" and "donâ€™t"."""
    for run in MISREAD.findall(facts.text):
        if meant := reread(run):
            return f"{shown(run)} for {shown(meant)} in {shown(facts.text)}"
    return None


def of_samples(find: Callable[[Signal], str | None]) -> Find:
    """Return a check of the measurements of samples; it finds nothing without samples."""
    return lambda facts, rules: None if facts.signal is None else find(facts.signal)


def marks_of(kind: str) -> Find:
    """Return a check that finds the marks of a kind, and names the first different ones."""

    def find(facts: Facts, rules: Rules) -> str | None:
        marks = [*dict.fromkeys(marks_in(facts.text).get(kind, ()))]
        more = ", …" if len(marks) > EXAMPLES else ""
        named = ", ".join(map(shown, marks[:EXAMPLES]))
        return f"{named}{more} in {shown(facts.text)}" if marks else None

    return find


def of_each(name: str, severity: Severity, meaning: str, find: Find, advice: str) -> Check:
    """Return the check of a corpus that checks each utterance."""

    def found(facts: Sequence[Facts], rules: Rules) -> Found:
        return ((each, message) for each in facts if (message := find(each, rules)))

    return Check(name, severity, meaning, found, advice)


UTTERANCE_CHECKS = [
    of_each("unreadable", "error", "audio cannot be read", lambda facts, _: facts.problem,
        "copy or convert the file again; --write CLEAN writes the manifest without such lines"),
    of_each("outside", "error", "start or end outside the file", outside_file,
        "start and duration are seconds of this file: check for milliseconds or another file"),
    of_each("cut-off", "error", "file ends before its header says", cut_off,
        "copy the file again, or shorten the text to what can be heard"),
    of_each("silent", "error", "silence", of_samples(silent),
        "record it again, or remove the line with --write"),
    of_each("empty-text", "error", "no text", empty_text,
        "write what is said, or remove the line with --write"),
    of_each("unknown", "error", "text that the tokenizer cannot write", unknown_symbols,
        "spell the text with the labels of the training texts, or add such texts to them"),
    of_each("ctc", "error", "too short for its text: CTC cannot align", too_short,
        "check for the text, start or duration of another recording"),
    of_each("limits", "error", "shorter or longer than training allows", outside_limits,
        "cut long recordings at pauses; data.min_seconds and data.max_seconds are the limits"),
    of_each("not-read", "warning", "files of which parts are not read", not_read,
        "copy or convert the file again; to use another track, convert it to a file"),
    of_each("mixed", "warning", "several channels without a channel", mixed,
        'if they are different voices, or cancel each other out, add "channel": N to the line, '
        "from 0"),
    of_each("clipped", "warning", "clipped", of_samples(
            lambda s: f"{s.clipped:.1%} of the samples" if s.clipped >= CLIPPED_SHARE else None),
        "record at a lower level; augmentation.gain_db does not repair it"),
    of_each("invisible", "warning", "invisible characters", invisible_characters,
        "asrkit data normalize removes them"),
    of_each("encoding", "warning", "text that was read in a wrong encoding", wrong_encoding,
        "read the source as UTF-8, or use asrkit data normalize"),
    of_each("markup", "warning", "entities or tags of a file format", marks_of("markup"),
        "asrkit data normalize decodes entities and removes tags"),
    of_each("address", "warning", "addresses of the web, of mail or of people", marks_of("address"),
        "write the words that are spoken: example dot com"),
    of_each("annotation", "warning", "brackets, tags of sounds, marked fillers",
        marks_of("annotation"),
        "asrkit data normalize removes them; remove lines with unknown words"),
    of_each("emoji", "warning", "emoji and smileys", marks_of("emoji"),
        "asrkit data normalize removes them"),
    of_each("digits", "warning", "digits", marks_of("digits"),
        "write numbers as they are spoken, like asrkit data normalize --numbers en"),
    of_each("symbols", "warning", "symbols that stand for words", marks_of("symbols"),
        "write the words that are spoken: per cent, dollars, and"),
]  # fmt: skip
