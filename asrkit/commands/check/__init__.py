"""Checks of a corpus before it is trained on (`asrkit data check`).

`reading` turns manifests into facts; `utterance` and `corpus` are lists of checks, functions from
facts to findings; `report` prints the findings, and `clean` writes a manifest without the errors.
"""

from collections.abc import Sequence

from asrkit.commands.check.corpus import CORPUS_CHECKS
from asrkit.commands.check.facts import Facts, Finding, Rules
from asrkit.commands.check.utterance import UTTERANCE_CHECKS

__all__ = ["Facts", "Finding", "Rules", "examine"]


def examine(facts: Sequence[Facts], rules: Rules) -> list[Finding]:
    """The findings of all checks, in their order."""
    found: list[Finding] = []
    for check in UTTERANCE_CHECKS:
        messages = ((each, check.find(each, rules)) for each in facts)
        found += (Finding.of(check, each, message) for each, message in messages if message)
    for corpus_check in CORPUS_CHECKS:
        pairs = corpus_check.find(facts, rules)
        found += (Finding.of(corpus_check, each, message) for each, message in pairs)
    return found
