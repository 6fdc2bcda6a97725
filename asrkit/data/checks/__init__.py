"""Checks of a corpus before training (`asrkit data check`).

`measure` turns manifests into facts. `utterance_checks`, `texts`, `corpus_checks` and `spelling`
have lists of checks: functions from facts to findings. `report` prints the findings, and `clean`
writes a manifest without the errors or with other texts.
"""

from collections.abc import Sequence

from asrkit.data.checks.corpus_checks import CORPUS_CHECKS
from asrkit.data.checks.facts import Facts, Finding, Rules
from asrkit.data.checks.spelling import SPELLING_CHECKS
from asrkit.data.checks.texts import TEXT_CHECKS
from asrkit.data.checks.utterance_checks import UTTERANCE_CHECKS

__all__ = ["ADVICE", "Facts", "Finding", "Rules", "examine"]

OF_UTTERANCES = [*UTTERANCE_CHECKS, *TEXT_CHECKS]
OF_CORPORA = [*CORPUS_CHECKS, *SPELLING_CHECKS]
# Advice for the findings of each check; "line" is the check of `measure`.
ADVICE = {
    **{check.name: check.advice for check in OF_UTTERANCES},
    **{check.name: check.advice for check in OF_CORPORA},
    "line": "write one JSON object a line with id, audio and text: docs/training.md",
}


def examine(facts: Sequence[Facts], rules: Rules, texts_only: bool = False) -> list[Finding]:
    """Return the findings of all checks, or of those that read texts, in the order of the checks.

    Args:
        facts: facts of the utterances; those of the first manifest come first.
        texts_only: leave out the checks of audio, ids and speakers.
    """
    found: list[Finding] = []
    for check in TEXT_CHECKS if texts_only else OF_UTTERANCES:
        messages = ((each, check.find(each, rules)) for each in facts)
        found += (Finding.of(check, each, message) for each, message in messages if message)
    for corpus_check in (SPELLING_CHECKS if texts_only else OF_CORPORA) if facts else ():
        pairs = corpus_check.find(facts, rules)
        found += (Finding.of(corpus_check, each, message) for each, message in pairs)
    return found
