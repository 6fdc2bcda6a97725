"""Checks of a whole corpus: repetitions, outliers, overlaps of its manifests."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence

from asrkit import audio
from asrkit.data.checks.facts import CorpusCheck, Facts, Found, Rules

# Letters a second, spaces not counted. English is read at 12 (the median of librispeech-mini);
# real recordings lie between 0.97 (an4: a letter, spelled) and 27 (fsdd: a digit, cut tight).
SLOWEST, FASTEST = 0.3, 35.0
DEVIATIONS = 5.0  # of log pace from the median, in robust standard deviations
LEAST_DEVIATION = 0.1  # lower bound of the standard deviation, which is 0 if all texts are equal
LEAST_COUNT = 20  # utterances from which on the median is trusted


def repeated_ids(facts: Sequence[Facts], rules: Rules) -> Found:
    for first, again in _repeats(facts, lambda f: (f.manifest, f.utterance.id)):
        yield again, f"the id of line {first.line} too"


def repeated_audio(facts: Sequence[Facts], rules: Rules) -> Found:
    for first, again in _repeats(facts, _audio):
        if first.manifest == again.manifest:
            yield again, _same_audio(first, again, rules)


def shared_audio(facts: Sequence[Facts], rules: Rules) -> Found:
    for first, again in _repeats(facts, _audio):
        if first.manifest != again.manifest:
            yield again, f"{_same_audio(first, again, rules)} in {first.manifest}"


def _audio(facts: Facts) -> Hashable:
    """A key that is equal for equal audio; None for silence, which has a check of its own."""
    if facts.problem is not None:
        return None
    if facts.signal is not None:
        return facts.signal.digest if facts.signal.rms else None
    return facts.utterance.audio, facts.utterance.start, facts.utterance.duration


def _same_audio(first: Facts, again: Facts, rules: Rules) -> str:
    same = rules.encode.normalize(first.text) == rules.encode.normalize(again.text)
    return f"as {first.utterance.id}" + ("" if same else ", but with another text")


def shared_ids(facts: Sequence[Facts], rules: Rules) -> Found:
    for first, again in _repeats(facts, lambda f: f.utterance.id):
        if first.manifest != again.manifest:
            yield again, f"in {first.manifest} too"


def shared_speakers(facts: Sequence[Facts], rules: Rules) -> Found:
    """One finding for each speaker and manifest."""
    count = Counter((f.manifest, f.utterance.speaker) for f in facts)
    named = set()
    for first, again in _repeats(facts, lambda f: f.utterance.speaker):
        speaker = again.utterance.speaker
        if first.manifest != again.manifest and (again.manifest, speaker) not in named:
            named.add((again.manifest, speaker))
            here, there = count[again.manifest, speaker], count[first.manifest, speaker]
            yield again, f"speaker {speaker!r}: {here} here, {there} in {first.manifest}"


def shared_texts(facts: Sequence[Facts], rules: Rules) -> Found:
    """Texts in two manifests, with their share: commands recur, sentences should not."""
    pairs = [
        (first, again)
        for first, again in _repeats(facts, lambda f: rules.encode.normalize(f.text) or None)
        if first.manifest != again.manifest
    ]
    shared, all_ = (Counter(f.manifest for f in part) for part in ([b for _, b in pairs], facts))
    for first, again in pairs:
        share = shared[again.manifest] / all_[again.manifest]
        yield (
            again,
            f"{again.text!r} is in {first.manifest} too, like {share:.0%} of {again.manifest}",
        )


def _repeats(
    facts: Sequence[Facts], key: Callable[[Facts], Hashable]
) -> Iterator[tuple[Facts, Facts]]:
    """Pairs of the first utterance with a key and a later one with the same key; None is no key."""
    seen: dict[Hashable, Facts] = {}
    for each in facts:
        value = key(each)
        first = each if value is None else seen.setdefault(value, each)
        if first is not each:
            yield first, each


def odd_pace(facts: Sequence[Facts], rules: Rules) -> Found:
    """Outliers in letters a second: a wrong text, a recording cut short, a long silence."""
    paces = {}
    for i, each in enumerate(facts):
        letters = len("".join(rules.encode.normalize(each.text).split()))
        if letters and each.seconds:
            paces[i] = math.log(letters / each.seconds)
    if not paces:
        return
    middle = statistics.median(paces.values())
    deviation = 1.4826 * statistics.median(abs(pace - middle) for pace in paces.values())
    allowed = math.inf
    if len(paces) >= LEAST_COUNT:
        allowed = DEVIATIONS * max(deviation, LEAST_DEVIATION)
    for i, pace in paces.items():
        letters_a_second = math.exp(pace)
        if abs(pace - middle) > allowed or not SLOWEST <= letters_a_second <= FASTEST:
            yield facts[i], f"{letters_a_second:.1f}/s, the median is {math.exp(middle):.1f}"


def mixed_rates(facts: Sequence[Facts], rules: Rules) -> Found:
    """Rates are resampled, but a recording at 8 kHz has nothing above 4 kHz."""
    return _minority(facts, "Hz", lambda f: f.sample_rate)


def low_rates(facts: Sequence[Facts], rules: Rules) -> Found:
    """Rates at which the upper mel bins hold nothing but the rest that a resampler leaves."""
    groups: dict[tuple[str, int], list[Facts]] = {}
    for each in facts:
        if each.sample_rate is not None and each.sample_rate < audio.SAMPLE_RATE:
            groups.setdefault((each.manifest, each.sample_rate), []).append(each)
    count = Counter(each.manifest for each in facts)
    frontend = rules.encode.frontend
    for (manifest, rate), its in groups.items():
        above = frontend.num_mels_above(rate / 2)
        if above:
            yield (
                its[0],
                f"{len(its)} of {count[manifest]} recordings at {rate} Hz: the upper {above} of "
                f"{frontend.num_mels} mel bins hold only what the resampler leaves",
            )


def mixed_channels(facts: Sequence[Facts], rules: Rules) -> Found:
    """Other numbers of channels than most have: training averages the channels."""
    return _minority(facts, "channels", lambda f: f.header.num_channels if f.header else None)


def _minority(facts: Sequence[Facts], unit: str, value: Callable[[Facts], int | None]) -> Found:
    values = [value(each) for each in facts]
    most = Counter(v for v in values if v is not None).most_common(1)
    for each, its in zip(facts, values, strict=True):
        if its is not None and its != most[0][0]:
            yield each, f"{its} {unit}, most have {most[0][0]}"


CORPUS_CHECKS: list[CorpusCheck] = [
    CorpusCheck("id", "error", "ids that occur twice in a manifest", repeated_ids,
        "give each line an id of its own"),
    CorpusCheck("audio-twice", "warning", "the same audio twice in a manifest", repeated_audio,
        "keep one line of each; where the texts differ, one of them is wrong"),
    CorpusCheck("pace", "warning", "unusually many or few letters a second", odd_pace,
        "listen to them: the text is another recording's, or only a part of what is said"),
    CorpusCheck("audio-overlap", "warning", "audio of an earlier manifest", shared_audio,
        "remove it from one of them: its score says nothing about new recordings"),
    CorpusCheck("speaker-overlap", "warning", "speakers of an earlier manifest", shared_speakers,
        "split by speaker: scores of known voices say nothing about new ones"),
    CorpusCheck("text-overlap", "note", "texts of an earlier manifest", shared_texts,
        "fine for commands; sentences should be new in dev"),
    CorpusCheck("id-overlap", "note", "ids of an earlier manifest", shared_ids,
        "rename them if the recordings differ: reports name utterances by id"),
    CorpusCheck("low-rate", "note", "sample rates below 16 kHz", low_rates,
        "if all audio is of this rate, model.frontend.high_frequency at half of it leaves no "
        "mel bin empty"),
    CorpusCheck("sample-rates", "note", "sample rates differ", mixed_rates,
        "nothing: all are resampled to 16 kHz; see that one speaker or label has not one rate"),
    CorpusCheck("channels", "note", "numbers of channels differ", mixed_channels,
        "nothing if all channels hold the same voice: training averages them"),
]  # fmt: skip
