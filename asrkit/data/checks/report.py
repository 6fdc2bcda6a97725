"""Text of the findings, and of the totals of manifests."""

from collections import Counter
from collections.abc import Callable, Sequence

from asrkit.data.checks.facts import SEVERITIES, Facts, Finding
from asrkit.text.graphemes import units

EXAMPLES = 3


def columns(
    facts: Sequence[Facts], manifests: Sequence[str], normalize: Callable[[str], str]
) -> str:
    """Format the totals as a table, with a column for each manifest."""
    parts = [[each for each in facts if each.manifest == path] for path in manifests]
    found = [
        {"": path, **totals(part, normalize)} for path, part in zip(manifests, parts, strict=True)
    ]
    rows = [[name, *(each[name] for each in found)] for name in found[0]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def totals(facts: Sequence[Facts], normalize: Callable[[str], str]) -> dict[str, str]:
    """Return the formatted totals of one manifest by their names."""
    lengths = [(each.seconds, each.utterance.id) for each in facts if each.seconds is not None]
    shortest, longest = (
        "{:.2f} s, {}".format(*choose(lengths)) if lengths else "-" for choose in (min, max)
    )
    rates = Counter(each.sample_rate for each in facts if each.sample_rate).most_common()
    texts = {normalize(each.text) for each in facts}
    return {
        "utterances": str(len(facts)),
        "hours": f"{sum(seconds for seconds, _ in lengths) / 3600:.2f}",
        "speakers": str(len({each.utterance.speaker for each in facts} - {None})),
        "sample rates": ", ".join(
            f"{rate} Hz" if len(rates) == 1 else f"{rate} Hz: {count}" for rate, count in rates
        ),
        "shortest": shortest,
        "longest": longest,
        "characters": str(len({character for text in texts for character in text})),
        # Distinct words; units in scripts without spaces
        "words": str(len({word for text in texts for word in units(text)})),
    }


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
