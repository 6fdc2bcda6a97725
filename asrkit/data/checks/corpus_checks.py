"""Checks of a whole corpus: repetitions, outliers, spelling, overlaps between manifests."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence

from asrkit.data.checks.facts import Check, Facts, Found, Rules
from asrkit.errors import shown
from asrkit.text.marks import marks_in

# Letters a second, without spaces. Read English has 12 (the median of librispeech-mini). Real
# recordings have 0.97 (an4: a spelled letter) to 27 (fsdd: a digit, cut tightly).
SLOWEST, FASTEST = 0.3, 35.0
DEVIATIONS = 5.0  # allowed deviation of log pace from the median, in robust standard deviations
LEAST_DEVIATION = 0.1  # lower bound of the standard deviation, which is 0 if all texts are equal
LEAST_COUNT = 20  # utterances that are needed to use the median
EXAMPLES = 3  # signs of a text in a message


def repeated_ids(facts: Sequence[Facts], rules: Rules) -> Found:
    for first, again in _repeats(facts, lambda f: (f.manifest, f.utterance.id)):
        yield again, f"the id of line {first.line} too"


def repeated_audio(facts: Sequence[Facts], rules: Rules) -> Found:
    # Silence has another check.
    for first, again in _repeats(facts, lambda f: f.signal and f.signal.rms and f.signal.digest):
        same = rules.encode.normalize(first.text) == rules.encode.normalize(again.text)
        place = "" if first.manifest == again.manifest else f" in {first.manifest}"
        text = "" if same else ", but with another text"
        yield again, f"as {first.utterance.id}{place}{text}"


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
    """Yield pairs of the first and a later utterance with the same key, which is true."""
    seen: dict[Hashable, Facts] = {}
    for each in facts:
        value = key(each)
        first = seen.setdefault(value, each) if value else each
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


def in_few(
    signs: Callable[[str], Sequence[str]], could: Callable[[str], bool] = bool
) -> Callable[[Sequence[Facts], Rules], Found]:
    """Return a check of signs that less than half of the first manifest's texts have.

    Args:
        could: function that returns whether a text could have such a sign.
    """

    def find(facts: Sequence[Facts], rules: Rules) -> Found:
        texts = [(each, rules.encode.normalize(each.text)) for each in facts]
        found = [(each, [*dict.fromkeys(signs(text))]) for each, text in texts if could(text)]
        first = [bool(some) for each, some in found if each.manifest == facts[0].manifest]
        if 2 * sum(first) < max(1, len(first)):
            for each, some in found:
                if some:
                    yield each, f"{', '.join(map(shown, some[:EXAMPLES]))} in {shown(each.text)}"

    return find


def has_case(text: str) -> bool:
    return text.lower() != text.upper()


CORPUS_CHECKS = [
    Check("id", "error", "ids that occur twice in a manifest", repeated_ids,
        "use a different id in each line"),
    Check("audio", "warning", "the same audio twice", repeated_audio,
        "keep one line of each: a text is wrong, or asrkit data import manifest divides anew"),
    Check("pace", "warning", "unusually many or few letters a second", odd_pace,
        "listen to them: the text may belong to another recording, or be incomplete"),
    Check("speaker-overlap", "warning", "speakers of an earlier manifest", shared_speakers,
        "divide anew with asrkit data import manifest: scores of trained voices are too good"),
    Check("capitals", "warning", "capitals in some texts",
        in_few(lambda text: [*filter(str.isupper, text)], has_case),
        "set text.case=lower, or use asrkit data normalize --case lower"),
    Check("small-letters", "warning", "small letters in some texts",
        in_few(lambda text: [*filter(str.islower, text)], has_case),
        "set text.case=upper, or use asrkit data normalize --case upper"),
    Check("some-punctuation", "warning", "punctuation in some texts",
        in_few(lambda text: marks_in(text).get("punctuation", [])),
        "write it in all texts, or use asrkit data normalize --punctuation remove"),
]  # fmt: skip
