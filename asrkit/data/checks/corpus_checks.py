"""Checks of a whole corpus: repetitions, outliers, overlaps between manifests."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence

from asrkit import audio
from asrkit.data.checks.facts import CorpusCheck, Facts, Found, Rules

# Letters a second, without spaces. Read English has 12 (the median of librispeech-mini). Real
# recordings have 0.97 (an4: a spelled letter) to 27 (fsdd: a digit, cut tightly).
SLOWEST, FASTEST = 0.3, 35.0
DEVIATIONS = 5.0  # allowed deviation of log pace from the median, in robust standard deviations
LEAST_DEVIATION = 0.1  # lower bound of the standard deviation, which is 0 if all texts are equal
LEAST_COUNT = 20  # utterances that are needed to use the median


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
    """Return a key that is equal for equal audio; None for silence, which has another check."""
    if facts.problem is not None:
        return None
    if facts.signal is not None:
        return facts.signal.digest if facts.signal.rms else None
    return facts.utterance.audio, facts.utterance.start, facts.utterance.duration


def _same_audio(first: Facts, again: Facts, rules: Rules) -> str:
    same = rules.encode.normalize(first.text) == rules.encode.normalize(again.text)
    return f"as {first.utterance.id}" + ("" if same else ", but with another text")


def shared_speakers(facts: Sequence[Facts], rules: Rules) -> Found:
    """Find speakers of two manifests, with a finding for each speaker and manifest."""
    count = Counter((f.manifest, f.utterance.speaker) for f in facts)
    named = set()
    for first, again in _repeats(facts, lambda f: f.utterance.speaker):
        speaker = again.utterance.speaker
        if first.manifest != again.manifest and (again.manifest, speaker) not in named:
            named.add((again.manifest, speaker))
            here, there = count[again.manifest, speaker], count[first.manifest, speaker]
            yield again, f"speaker {speaker!r}: {here} here, {there} in {first.manifest}"


def _repeats(
    facts: Sequence[Facts], key: Callable[[Facts], Hashable]
) -> Iterator[tuple[Facts, Facts]]:
    """Yield pairs of the first and a later utterance with the same key; skip the key None."""
    seen: dict[Hashable, Facts] = {}
    for each in facts:
        value = key(each)
        first = each if value is None else seen.setdefault(value, each)
        if first is not each:
            yield first, each


def odd_pace(facts: Sequence[Facts], rules: Rules) -> Found:
    """Find outliers in letters a second: a wrong text, a truncated recording, a long silence."""
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


def low_rates(facts: Sequence[Facts], rules: Rules) -> Found:
    """Find rates at which the upper mel bins contain only the residue of resampling."""
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
                f"{frontend.num_mels} mel bins contain only the residue of resampling",
            )


CORPUS_CHECKS: list[CorpusCheck] = [
    CorpusCheck("id", "error", "ids that occur twice in a manifest", repeated_ids,
        "use a different id in each line"),
    CorpusCheck("audio-twice", "warning", "the same audio twice in a manifest", repeated_audio,
        "keep one line of each; if the texts differ, one of them is wrong"),
    CorpusCheck("pace", "warning", "unusually many or few letters a second", odd_pace,
        "listen to them: the text may belong to another recording, or be incomplete"),
    CorpusCheck("audio-overlap", "warning", "audio of an earlier manifest", shared_audio,
        "divide anew with asrkit data import manifest: scores of trained recordings are too good"),
    CorpusCheck("speaker-overlap", "warning", "speakers of an earlier manifest", shared_speakers,
        "divide anew with asrkit data import manifest: scores of trained voices are too good"),
    CorpusCheck("low-rate", "note", "sample rates below 16 kHz", low_rates,
        "if all audio has this rate, set model.frontend.high_frequency to half of it to use all "
        "mel bins"),
]  # fmt: skip
