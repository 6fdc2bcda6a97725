"""Checks of a whole corpus: repetitions, outliers, spelling, overlaps between manifests."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence

from asrkit import audio
from asrkit.data.checks.facts import Check, Facts, Found, Rules
from asrkit.errors import shown
from asrkit.text.marks import marks_in

# Letters a second, without spaces. Read English has 12 (the median of librispeech-mini). Real
# recordings have 0.97 (an4: a spelled letter) to 27 (fsdd: a digit, cut tightly).
SLOWEST, FASTEST = 0.3, 35.0
DEVIATIONS = 5.0  # allowed deviation of log pace from the median, in robust standard deviations
LEAST_DEVIATION = 0.1  # lower bound of the standard deviation, which is 0 if all texts are equal
MIXED = "mixed case"
LEAST_COUNT = 20  # utterances that are needed to use the median


def repeated_ids(facts: Sequence[Facts], rules: Rules) -> Found:
    for first, again in _repeats(facts, lambda f: (f.manifest, f.utterance.id)):
        yield again, f"the id of line {first.line} too"


def repeated_audio(facts: Sequence[Facts], rules: Rules) -> Found:
    for first, again in _repeats(facts, _audio):
        same = rules.encode.normalize(first.text) == rules.encode.normalize(again.text)
        place = "" if first.manifest == again.manifest else f" in {first.manifest}"
        text = "" if same else ", but with another text"
        yield again, f"as {first.utterance.id}{place}{text}"


def _audio(facts: Facts) -> Hashable:
    """Return a key that is equal for equal audio; None for silence, which has another check."""
    if facts.problem is not None:
        return None
    if facts.signal is not None:
        return facts.signal.digest if facts.signal.rms else None
    return facts.utterance.audio, facts.utterance.start, facts.utterance.duration


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
    frontend = rules.encode.frontend
    for rate, count in Counter(each.sample_rate for each in facts).items():
        above = frontend.num_mels_above(rate / 2) if rate and rate < audio.SAMPLE_RATE else 0
        if above:
            yield (
                next(each for each in facts if each.sample_rate == rate),
                f"{count} of {len(facts)} recordings at {rate} Hz: the upper {above} of "
                f"{frontend.num_mels} mel bins contain only the residue of resampling",
            )


def other_case(facts: Sequence[Facts], rules: Rules) -> Found:
    """Find texts in another case than most texts of the first manifest, if these are of one."""
    texts = [rules.encode.normalize(each.text) for each in facts]
    cases = [case_of(text) for text in texts]
    first = Counter(
        case
        for each, case in zip(facts, cases, strict=True)
        if case and each.manifest == facts[0].manifest
    )
    usual = max(first, key=lambda case: first[case], default=MIXED)
    for each, text, case in zip(facts, texts, cases, strict=True):
        if case and case != usual != MIXED:
            yield each, f"{case} in {shown(text)}, most texts of {facts[0].manifest} are {usual}"


def case_of(text: str) -> str | None:
    """Return the case of a text; None for a text with fewer than two letters of a case."""
    if sum(c.isupper() or c.islower() for c in text) < 2:
        return None
    return "lower case" if text.islower() else "upper case" if text.isupper() else MIXED


def some_punctuation(facts: Sequence[Facts], rules: Rules) -> Found:
    """Find punctuation, if less than half of the first manifest's texts have punctuation."""
    marks = [marks_in(each.text).get("punctuation") for each in facts]
    first = [
        bool(signs)
        for each, signs in zip(facts, marks, strict=True)
        if each.text and each.manifest == facts[0].manifest
    ]
    if 2 * sum(first) < max(1, len(first)):
        for each, signs in zip(facts, marks, strict=True):
            if signs:
                yield each, f"{', '.join(map(shown, dict.fromkeys(signs)))} in {shown(each.text)}"


CORPUS_CHECKS = [
    Check("id", "error", "ids that occur twice in a manifest", repeated_ids,
        "use a different id in each line"),
    Check("audio", "warning", "the same audio twice", repeated_audio,
        "keep one line of each: a text is wrong, or asrkit data import manifest divides anew"),
    Check("pace", "warning", "unusually many or few letters a second", odd_pace,
        "listen to them: the text may belong to another recording, or be incomplete"),
    Check("speaker-overlap", "warning", "speakers of an earlier manifest", shared_speakers,
        "divide anew with asrkit data import manifest: scores of trained voices are too good"),
    Check("low-rate", "warning", "sample rates below 16 kHz", low_rates,
        "if all audio has this rate, set model.frontend.high_frequency to half of it to use all "
        "mel bins"),
    Check("case", "warning", "texts in another case than most", other_case,
        "set text.case to lower or upper, or use asrkit data normalize --case lower"),
    Check("some-punctuation", "warning", "punctuation in some texts", some_punctuation,
        "write it in all texts, or use asrkit data normalize --punctuation remove"),
]  # fmt: skip
