"""Checks of one utterance; each returns a message with the wrong value, or None."""

import math
import unicodedata
from collections.abc import Callable

from asrkit import audio
from asrkit.audio.samples import CANCELLED_DB
from asrkit.data.checks.facts import Facts, Rules, Signal, UtteranceCheck
from asrkit.text import TextError

TOLERANCE = 0.1  # s, as when reading: headers of lossy formats have slightly too long lengths
# All 4645 recordings of five real corpora (an4, fsdd, yesno, librispeech-mini, kerstin) are
# above -48 dBFS. The noise of rounding to 16 bits is at -101.
SILENT_DB = -70.0
SAME = 0.5  # of the level in dB that the mix of equal channels has above that of independent ones
TOO_LOUD = 1000.0  # times full scale: damaged, or integers that were written as floats
CLIPPED_SHARE = 0.001  # 16 samples a second at 16 kHz; these recordings have at most 0.00002
# These recordings have at most 3.7 s of silence, a quarter of the length. Recordings that are half
# silent have at most 0.8 s.
LONG_SILENCE, SILENCE, SILENT_SHARE = 5.0, 2.5, 0.6
JOINERS = "\u200c\u200d"  # spelling in Persian and Hindi


def other_header(facts: Facts, rules: Rules) -> str | None:
    """Compare the manifest with the header, which training does not read."""
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
    if noted := [each for each in facts.notes if "cut off" in each]:
        return "; ".join(noted)
    expected = facts._replace(signal=None).seconds  # from the header
    if expected is None or facts.signal.seconds >= expected - TOLERANCE:
        return None
    return f"ends after {facts.signal.seconds:.2f} of {expected:.2f} s"


def longer_file(facts: Facts, rules: Rules) -> str | None:
    """Compare a duration without `start`, which usually means the whole file, with the file."""
    duration = facts.utterance.duration
    if facts.file_seconds is None or duration is None or facts.utterance.start is not None:
        return None
    if facts.file_seconds <= duration + TOLERANCE:
        return None
    return f"duration {duration:.2f} s, the file has {facts.file_seconds:.2f} s"


def not_read(facts: Facts, rules: Rules) -> str | None:
    return "; ".join(each for each in facts.notes if "cut off" not in each) or None


def cancelled(facts: Facts, rules: Rules) -> str | None:
    if facts.signal is None or facts.signal.mix_db >= CANCELLED_DB:
        return None
    return (
        f"the mix of its {facts.header and facts.header.num_channels} channels is "
        f"{-facts.signal.mix_db:.0f} dB below that of independent channels"
    )


def mixed(facts: Facts, rules: Rules) -> str | None:
    """Find files whose channels differ, as those of a telephone call, and are averaged."""
    count = facts.header.num_channels if facts.header else 1
    if facts.utterance.channel is not None or count == 1:
        return None
    level = facts.signal and facts.signal.mix_db
    if level is None:
        return f"the mean of {count} channels"
    if not CANCELLED_DB <= level < SAME * 10 * math.log10(count) or silent(facts, rules):
        return None
    return f"the mean of {count} channels that differ"


def of_samples(find: Callable[[Signal], str | None]) -> Callable[[Facts, Rules], str | None]:
    """Return a check of the measurements of samples; it finds nothing without samples."""
    return lambda facts, rules: None if facts.signal is None else find(facts.signal)


@of_samples
def silent(signal: Signal) -> str | None:
    if not signal.rms:
        return f"all samples are {signal.mean:g}"
    level = decibels(signal.rms)
    return f"RMS {level:.0f} dBFS" if level < SILENT_DB else None


@of_samples
def long_silence(signal: Signal) -> str | None:
    """Find long quiet stretches: 30 dB or more below the loudest sounds, or most of a recording."""
    if decibels(signal.rms) < SILENT_DB:
        return None
    (start, end), seconds = signal.quiet, signal.seconds
    length = end - start
    if length < LONG_SILENCE and not (length >= SILENCE and length >= SILENT_SHARE * seconds):
        return None
    return f"{length:.1f} of {seconds:.1f} s, from {start:.1f} to {end:.1f} s"


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
    """Find control, format and unassigned characters, and U+FFFD, the sign of a wrong encoding."""
    text = rules.encode.normalize(facts.text)
    if text.isascii() and text.isprintable():
        return None
    odd = {c for c in text if unicodedata.category(c)[0] == "C" or c == "\ufffd"} - set(JOINERS)
    named = ", ".join(f"U+{ord(c):04X}" for c in sorted(odd))
    return f"{named} in {facts.text!r}" if odd else None


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


UTTERANCE_CHECKS: list[UtteranceCheck] = [
    UtteranceCheck("unreadable", "error", "audio cannot be read", lambda facts, _: facts.problem,
        "copy or convert the file again; --write CLEAN writes the manifest without such lines"),
    UtteranceCheck("header", "error", "rate or channels are not the file's", other_header,
        "remove sample_rate and num_channels from the manifest: the file has them"),
    UtteranceCheck("outside", "error", "start or end outside the file", outside_file,
        "start and duration are seconds of this file: check for milliseconds or another file"),
    UtteranceCheck("cut-off", "error", "file ends before its header says", cut_off,
        "copy the file again, or shorten the text to what can be heard"),
    UtteranceCheck("not-finite", "error", "samples that are NaN or infinite",
        of_samples(lambda s: f"{s.not_finite} samples" if s.not_finite else None),
        "write the file again from its source"),
    UtteranceCheck("too-loud", "error", "samples far beyond full scale", of_samples(
            lambda s: f"a peak of {s.peak:.3g} times full scale" if s.peak >= TOO_LOUD else None),
        "write the file again from its source; full scale is 1 for samples that are floats"),
    UtteranceCheck("silent", "error", "silence", silent,
        "record it again, or remove the line with --write"),
    UtteranceCheck("empty-text", "error", "no text", empty_text,
        "write what is said, or remove the line with --write"),
    UtteranceCheck("unknown", "error", "text that the tokenizer cannot write", unknown_symbols,
        "spell the text with the labels of the training texts, or add such texts to them"),
    UtteranceCheck("ctc", "error", "too short for its text: CTC cannot align", too_short,
        "check for the text, start or duration of another recording"),
    UtteranceCheck("limits", "error", "shorter or longer than training allows", outside_limits,
        "cut long recordings at pauses; data.min_seconds and data.max_seconds are the limits"),
    UtteranceCheck("duration", "warning", "file longer than the manifest says", longer_file,
        "remove duration to use the whole file, or add start to use a part"),
    UtteranceCheck("not-read", "warning", "files of which parts are not read", not_read,
        "copy or convert the file again; to use another track, convert it to a file"),
    UtteranceCheck("cancelled", "warning", "channels that cancel each other out", cancelled,
        'add "channel": N to the line, from 0'),
    UtteranceCheck("mixed", "warning", "several channels without a channel", mixed,
        'if they are different voices, add "channel": N to the line, from 0; asrkit data import '
        "--channels agent=0,customer=1 does so by speaker"),
    UtteranceCheck("clipped", "warning", "clipped", of_samples(
            lambda s: f"{s.clipped:.1%} of the samples" if s.clipped >= CLIPPED_SHARE else None),
        "record at a lower level; augmentation.gain_db does not repair it"),
    UtteranceCheck("silence", "warning", "long silence", long_silence,
        "remove it with start and duration, or complete a text that lacks words"),
    UtteranceCheck("invisible", "warning", "invisible characters", invisible_characters,
        "asrkit data normalize removes them"),
]  # fmt: skip
