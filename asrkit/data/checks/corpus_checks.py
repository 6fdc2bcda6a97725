"""Checks of a whole corpus: repetitions, outliers, spelling, overlaps between manifests."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence

from asrkit import audio
from asrkit.data.checks.facts import Check, Facts, Found, Rules
from asrkit.errors import shown
from asrkit.text.marks import FORMS, marks_in

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
    """Find texts in another case than most texts of the first manifest.

    Mixed case is not compared: names have capitals in the middle of sentences.
    """
    texts = [rules.encode.normalize(each.text) for each in facts]
    cases = [case_of(text) for text in texts]
    first = [each.manifest == facts[0].manifest for each in facts]
    training = Counter(case for case, is_first in zip(cases, first, strict=True) if is_first)
    del training[None]
    ((usual, _),) = training.most_common(1) or [(None, 0)]
    for each, text, case in zip(facts, texts, cases, strict=True):
        if case and case != usual and "mixed case" not in (case, usual):
            yield each, f"{case} in {shown(text)}, most texts of {facts[0].manifest} are {usual}"


def case_of(text: str) -> str | None:
    """Return the case of a text; None for texts with no letter or only one upper-case letter."""
    letters = [c for c in text if c.isupper() or c.islower()]
    upper = sum(c.isupper() for c in letters)
    if upper == 0:
        return "lower case" if letters else None
    if upper == len(letters):
        return "upper case" if len(letters) > 1 else None
    return "sentence case" if letters[0].isupper() and 2 * upper <= len(letters) else "mixed case"


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


def forms_of_signs(facts: Sequence[Facts], rules: Rules) -> Found:
    """Find apostrophes and hyphens in another form than the usual one of these texts."""
    texts = [rules.encode.normalize(each.text) for each in facts]
    count = Counter(c for text in texts for c in text)
    odd: dict[str, str] = {}
    for forms in FORMS[:2]:
        usual = max(forms, key=lambda c: count[c])
        odd |= {c: usual for c in forms if c != usual}
    for each, text in zip(facts, texts, strict=True):
        if wrong := [f"{c} (U+{ord(c):04X}) for {odd[c]}" for c in dict.fromkeys(text) if c in odd]:
            yield each, f"{', '.join(wrong)} in {shown(text)}"


CORPUS_CHECKS = [
    Check("id", "error", "ids that occur twice in a manifest", repeated_ids,
        "use a different id in each line"),
    Check("audio-twice", "warning", "the same audio twice in a manifest", repeated_audio,
        "keep one line of each; if the texts differ, one of them is wrong"),
    Check("pace", "warning", "unusually many or few letters a second", odd_pace,
        "listen to them: the text may belong to another recording, or be incomplete"),
    Check("audio-overlap", "warning", "audio of an earlier manifest", shared_audio,
        "divide anew with asrkit data import manifest: scores of trained recordings are too good"),
    Check("speaker-overlap", "warning", "speakers of an earlier manifest", shared_speakers,
        "divide anew with asrkit data import manifest: scores of trained voices are too good"),
    Check("low-rate", "warning", "sample rates below 16 kHz", low_rates,
        "if all audio has this rate, set model.frontend.high_frequency to half of it to use all "
        "mel bins"),
    Check("case", "warning", "texts in another case than most", other_case,
        "set text.case to lower or upper, or use asrkit data normalize --case lower"),
    Check("some-punctuation", "warning", "punctuation in some texts", some_punctuation,
        "write it in all texts, or use asrkit data normalize --punctuation remove"),
    Check("signs", "warning", "two forms of one apostrophe or hyphen", forms_of_signs,
        "asrkit data normalize writes one form, ' and -"),
]  # fmt: skip
