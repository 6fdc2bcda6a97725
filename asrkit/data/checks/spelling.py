"""Checks of the spelling in a corpus: each word, letter and sign should have only one form."""

from collections import Counter
from collections.abc import Sequence

from asrkit.data.checks.facts import CorpusCheck, Facts, Found, Rules
from asrkit.errors import shown
from asrkit.text.marks import FORMS, marks_in


def style(text: str) -> str | None:
    """Return the case of a text; None for texts with no letter or only one upper-case letter."""
    letters = [c for c in text if c.isupper() or c.islower()]
    upper = sum(c.isupper() for c in letters)
    if upper == 0:
        return "lower case" if letters else None
    if upper == len(letters):
        return "upper case" if len(letters) > 1 else None
    return "sentence case" if letters[0].isupper() and 2 * upper <= len(letters) else "mixed case"


def other_case(facts: Sequence[Facts], rules: Rules) -> Found:
    """Find texts in another case than most texts of the first manifest.

    Mixed case is not compared: names have capitals in the middle of sentences.
    """
    texts = [rules.encode.normalize(each.text) for each in facts]
    styles = [style(text) for text in texts]
    training = Counter(
        s for each, s in zip(facts, styles, strict=True) if s and _first(each, facts)
    )
    usual = max(training, key=lambda name: training[name], default=None)
    for each, text, its in zip(facts, texts, styles, strict=True):
        if its and its != usual and "mixed case" not in (its, usual):
            yield each, f"{its} in {shown(text)}, most texts of {facts[0].manifest} are {usual}"


def some_punctuation(facts: Sequence[Facts], rules: Rules) -> Found:
    """Find punctuation, if less than half of the first manifest's texts have punctuation."""
    if not _punctuated(facts):
        for each in facts:
            if marks := marks_in(each.text).get("punctuation"):
                yield each, f"{', '.join(map(shown, dict.fromkeys(marks)))} in {shown(each.text)}"


def _punctuated(facts: Sequence[Facts]) -> bool:
    """Return whether at least half of the texts of the first manifest have punctuation."""
    texts = [each for each in facts if each.text and _first(each, facts)]
    return 2 * sum("punctuation" in marks_in(each.text) for each in texts) >= max(1, len(texts))


def _first(each: Facts, facts: Sequence[Facts]) -> bool:
    """Return whether an utterance belongs to the first manifest, which is the training set."""
    return each.manifest == facts[0].manifest


def forms_of_signs(facts: Sequence[Facts], rules: Rules) -> Found:
    """Find apostrophes, hyphens and quotes in another form than the usual one of these texts.

    A typographic apostrophe is found even if it is the only form: the next text may have the plain
    one.
    """
    texts = [rules.encode.normalize(each.text) for each in facts]
    count = Counter(c for text in texts for c in text)
    odd: dict[str, str] = {}
    for forms in FORMS:
        used = [c for c in forms if count[c]]
        usual = max(used, key=lambda c: count[c], default="")
        if forms is FORMS[0] and used:
            usual = forms[0]
        if forms is not FORMS[2] or ('"' in used and len(used) > 1):
            odd |= {c: usual for c in used if c != usual}
    for each, text in zip(facts, texts, strict=True):
        if wrong := [f"{c} (U+{ord(c):04X}) for {odd[c]}" for c in dict.fromkeys(text) if c in odd]:
            yield each, f"{', '.join(wrong)} in {shown(text)}"


SPELLING_CHECKS: list[CorpusCheck] = [
    CorpusCheck("case", "warning", "texts in another case than most", other_case,
        "set text.case to lower or upper, or use asrkit data normalize --case lower"),
    CorpusCheck("some-punctuation", "warning", "punctuation in some texts", some_punctuation,
        "write it in all texts, or use asrkit data normalize --punctuation remove"),
    CorpusCheck("signs", "warning", "two forms of one apostrophe, hyphen or quote", forms_of_signs,
        "asrkit data normalize writes one form, ' and -"),
]  # fmt: skip
