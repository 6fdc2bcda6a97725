"""Checks of a corpus before training (`asrkit data check`).

`measure` turns manifests into facts. `utterance_checks` and `corpus_checks` have lists of checks:
functions from facts to findings. `report` formats the findings, and `clean` writes a manifest
without the errors or with other texts.
"""

from collections.abc import Sequence

from asrkit.data.checks.corpus_checks import CORPUS_CHECKS
from asrkit.data.checks.facts import Facts, Finding, Rules
from asrkit.data.checks.utterance_checks import UTTERANCE_CHECKS

CHECKS = [*UTTERANCE_CHECKS, *CORPUS_CHECKS]


def examine(facts: Sequence[Facts], rules: Rules) -> list[Finding]:
    """Return the findings of all checks, in their order; facts of the first manifest come first."""
    return [
        Finding(check, each.manifest, each.line, each.utterance.id, message)
        for check in CHECKS
        for each, message in check.find(facts, rules)
    ]
