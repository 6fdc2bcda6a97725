"""Text of the findings, and of the totals of manifests."""

from collections import Counter
from collections.abc import Sequence

from asrkit.data.checks.facts import SEVERITIES, Facts, Finding
from asrkit.data.splits import totals

EXAMPLES = 3


def summary(path: str, facts: Sequence[Facts]) -> str:
    """Return the totals of a manifest in one line."""
    rows = [{"duration": each.seconds or 0.0, "speaker": each.utterance.speaker} for each in facts]
    seconds = [each.seconds for each in facts if each.seconds is not None]
    lengths = f", {min(seconds):.2f} to {max(seconds):.2f} s" if seconds else ""
    rates = Counter(each.sample_rate for each in facts if each.sample_rate).most_common()
    named = "".join(f", {count} at {rate} Hz" for rate, count in rates)
    return f"{path}: {totals(rows)}{lengths}{named}"


def by_check(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Return the findings of each check, the worst first."""
    kinds: dict[str, list[Finding]] = {}
    for finding in sorted(findings, key=lambda f: SEVERITIES.index(f.check.severity)):
        kinds.setdefault(finding.check.name, []).append(finding)
    return [*kinds.values()]


def table(findings: Sequence[Finding]) -> str:
    """Format findings, a line for each check, worst first: severity, count, meaning, examples."""
    kinds, lines = by_check(findings), list[str]()
    width = max((len(found[0].check.meaning) for found in kinds), default=0)
    for found in kinds:
        examples = "; ".join(f"{f.id or f'line {f.line}'}: {f.message}" for f in found[:EXAMPLES])
        examples += "; …" if len(found) > EXAMPLES else ""
        check = found[0].check
        lines.append(f"{check.severity:8}{len(found):>6}  {check.meaning:<{width}}  {examples}")
    return "\n".join(lines)


def advice(findings: Sequence[Finding]) -> str:
    """Format the advice for the findings, a line for each check, the worst first."""
    checks = (found[0].check for found in by_check(findings))
    return "\n".join(["what to do", *(f"  {each.meaning}: {each.advice}" for each in checks)])


def listed(finding: Finding) -> str:
    """Format a finding in a line, as compilers do: file, line, severity, check, message."""
    name = f"{finding.id}: " if finding.id else ""
    where = f"{finding.manifest}:{finding.line}: {finding.check.severity}: {finding.check.name}"
    return f"{where}: {name}{finding.message}"


def verdict(findings: Sequence[Finding]) -> str:
    count = Counter(finding.check.severity for finding in findings)
    return ", ".join(
        f"{count[severity]} {severity}{'' if count[severity] == 1 else 's'}"
        for severity in SEVERITIES
    )
