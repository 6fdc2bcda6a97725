"""Checks of one utterance: each returns a message with the wrong value, or None."""

import math
import unicodedata
from collections.abc import Callable

from asrkit import audio
from asrkit.commands.check.facts import Check, Facts, Rules
from asrkit.text import TextError

TOLERANCE = 0.1  # s, as when reading: headers of lossy formats give a little too much
# The 4645 recordings of five real corpora (an4, fsdd, yesno, librispeech-mini, kerstin) all lie
# above -48 dBFS; rounding to 16 bits alone is -101.
SILENT_DB, FAINT_DB = -70.0, -55.0
CLIPPED_SHARE = 0.001  # 16 samples a second at 16 kHz; those recordings have 0.00002 at most
DC_OFFSET = 0.02  # those recordings have 0.011 at most
JOINERS = "\u200c\u200d"  # letters of Persian and Hindi need these two invisible characters


UtteranceCheck = Check[Callable[[Facts, Rules], str | None]]


def unreadable(facts: Facts, rules: Rules) -> str | None:
    return facts.problem


def other_header(facts: Facts, rules: Rules) -> str | None:
    """Training uses the manifest's values without reading the header."""
    if facts.header is None:
        return None
    stated, actual = facts.utterance, facts.header
    if stated.sample_rate not in (None, actual.sample_rate):
        return f"sample_rate {stated.sample_rate}, the file's is {actual.sample_rate}"
    if "num_channels" in stated.model_fields_set and stated.num_channels != actual.num_channels:
        return f"num_channels {stated.num_channels}, the file's are {actual.num_channels}"
    return None


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
    expected = facts._replace(signal=None).seconds  # by the header
    if expected is None or facts.signal.seconds >= expected - TOLERANCE:
        return None
    return f"ends after {facts.signal.seconds:.2f} of {expected:.2f} s"


def longer_file(facts: Facts, rules: Rules) -> str | None:
    """A duration without `start` is most often meant to be that of the file."""
    duration = facts.utterance.duration
    if facts.file_seconds is None or duration is None or facts.utterance.start is not None:
        return None
    if facts.file_seconds <= duration + TOLERANCE:
        return None
    return f"duration {duration:.2f} s, the file has {facts.file_seconds:.2f} s"


def not_finite(facts: Facts, rules: Rules) -> str | None:
    if facts.signal is None or not facts.signal.not_finite:
        return None
    return f"{facts.signal.not_finite} samples"


def silent(facts: Facts, rules: Rules) -> str | None:
    if facts.signal is None or decibels(facts.signal.rms) >= SILENT_DB:
        return None
    if not facts.signal.rms:
        return f"all samples are {facts.signal.mean:g}"
    return f"RMS {decibels(facts.signal.rms):.0f} dBFS"


def faint(facts: Facts, rules: Rules) -> str | None:
    if facts.signal is None or not SILENT_DB <= decibels(facts.signal.rms) < FAINT_DB:
        return None
    return f"RMS {decibels(facts.signal.rms):.0f} dBFS"


def clipped(facts: Facts, rules: Rules) -> str | None:
    if facts.signal is None or facts.signal.clipped < CLIPPED_SHARE:
        return None
    return f"{facts.signal.clipped:.1%} of the samples"


def dc_offset(facts: Facts, rules: Rules) -> str | None:
    """Harmless for asrkit, whose features subtract the mean of each window."""
    if facts.signal is None or abs(facts.signal.mean) < DC_OFFSET:
        return None
    return f"mean {facts.signal.mean:.3f}"


def decibels(level: float) -> float:
    return 20 * math.log10(level) if level > 0 else -math.inf


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


def invisible_characters(facts: Facts, rules: Rules) -> str | None:
    """Control, format and unassigned characters, and U+FFFD, the trace of a wrong encoding."""
    text = rules.encode.normalize(facts.text)
    found = sorted(
        {c for c in text if unicodedata.category(c)[0] == "C" or c == "\ufffd"} - set(JOINERS)
    )
    return f"{', '.join(f'U+{ord(c):04X}' for c in found)} in {facts.text!r}" if found else None


def unicode_form(facts: Facts, rules: Rules) -> str | None:
    """Two Unicode forms of a letter become two labels, unless text.unicode_form unites them."""
    if facts.text != unicodedata.normalize("NFC", facts.text):
        return f"not NFC: {facts.text!r}"
    odd = sorted({c for c in facts.text if unicodedata.normalize("NFKC", c) != c})
    plain = (f"{c!r} for {unicodedata.normalize('NFKC', c)!r}" for c in odd)
    return f"not NFKC: {', '.join(plain)}" if odd else None


def too_short_for_ctc(facts: Facts, rules: Rules) -> str | None:
    return _why_not(facts, rules, speed=1.0)


def too_short_when_fast(facts: Facts, rules: Rules) -> str | None:
    if _why_not(facts, rules, speed=1.0):
        return None
    reason = _why_not(facts, rules, rules.fastest)
    return reason and f"at speed {rules.fastest:g}: {reason}"


def _why_not(facts: Facts, rules: Rules, speed: float) -> str | None:
    """Why training would leave the utterance out as too short; other checks judge the text."""
    if facts.seconds is None or empty_text(facts, rules) or unknown_symbols(facts, rules):
        return None
    reason = rules.encode.why_not(facts.text, int(facts.seconds / speed * audio.SAMPLE_RATE))
    return reason and reason.removeprefix("too short: ")


def outside_limits(facts: Facts, rules: Rules) -> str | None:
    if facts.seconds is None or rules.min_seconds <= facts.seconds <= rules.max_seconds:
        return None
    return f"{facts.seconds:.2f} s, not {rules.min_seconds:g} to {rules.max_seconds:g}"


UTTERANCE_CHECKS: list[UtteranceCheck] = [
    Check("unreadable", "error", "audio cannot be read", unreadable),
    Check("header", "error", "rate or channels are not the file's", other_header),
    Check("outside", "error", "start or end outside the file", outside_file),
    Check("cut-off", "error", "file ends before its header says", cut_off),
    Check("not-finite", "error", "samples that are NaN or infinite", not_finite),
    Check("silent", "error", "silence", silent),
    Check("empty-text", "error", "no text", empty_text),
    Check("unknown", "error", "text that the tokenizer cannot write", unknown_symbols),
    Check("ctc", "error", "too short for its text: CTC cannot align", too_short_for_ctc),
    Check("limits", "error", "shorter or longer than training takes", outside_limits),
    Check("duration", "warning", "file longer than the manifest says", longer_file),
    Check("faint", "warning", "very quiet", faint),
    Check("clipped", "warning", "clipped", clipped),
    Check("invisible", "warning", "invisible characters", invisible_characters),
    Check("ctc-speed", "warning", "too short for its text when sped up", too_short_when_fast),
    Check("dc-offset", "note", "DC offset", dc_offset),
    Check("unicode", "note", "unusual Unicode form", unicode_form),
]  # fmt: skip
