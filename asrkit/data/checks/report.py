"""Output of the findings as text and as JSON."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from asrkit.data.checks import ADVICE
from asrkit.data.checks.facts import SEVERITIES, Facts, Finding
from asrkit.text.graphemes import units

EXAMPLES = 3


class Totals(NamedTuple):
    """Totals of one manifest."""

    utterances: int
    hours: float
    speakers: int
    sample_rates: dict[int, int]  # Hz to utterances
    shortest: tuple[float, str] | None  # seconds and id
    longest: tuple[float, str] | None
    characters: int  # distinct ones
    words: int  # distinct ones; units in scripts without spaces


def totals(facts: Sequence[Facts], normalize: Callable[[str], str]) -> Totals:
    seconds = [(each.seconds, each.utterance.id) for each in facts if each.seconds is not None]
    texts = {normalize(each.text) for each in facts}
    return Totals(
        utterances=len(facts),
        hours=sum(length for length, _ in seconds) / 3600,
        speakers=len({each.utterance.speaker for each in facts} - {None}),
        sample_rates=dict(Counter(f.sample_rate for f in facts if f.sample_rate).most_common()),
        shortest=min(seconds, default=None),
        longest=max(seconds, default=None),
        characters=len({character for text in texts for character in text}),
        words=len({word for text in texts for word in units(text)}),
    )


def by_manifest(
    facts: Sequence[Facts], manifests: Sequence[str], normalize: Callable[[str], str]
) -> dict[str, Totals]:
    return {
        path: totals([each for each in facts if each.manifest == path], normalize)
        for path in manifests
    }


def by_check(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Return the findings of each check, the worst first."""
    kinds: dict[str, list[Finding]] = {}
    for finding in sorted(findings, key=lambda f: SEVERITIES.index(f.severity)):
        kinds.setdefault(finding.check, []).append(finding)
    return [*kinds.values()]


def table(findings: Sequence[Finding]) -> str:
    """Format findings, a line for each check, worst first: severity, count, meaning, examples."""
    kinds, lines = by_check(findings), list[str]()
    meanings = max((len(found[0].meaning) for found in kinds), default=0)
    for found in kinds:
        examples = "; ".join(f"{f.id or f'line {f.line}'}: {f.message}" for f in found[:EXAMPLES])
        examples += "; …" if len(found) > EXAMPLES else ""
        kind = found[0]
        lines.append(f"{kind.severity:8}{len(found):>6}  {kind.meaning:<{meanings}}  {examples}")
    return "\n".join(lines)


def advice(findings: Sequence[Finding]) -> str:
    """Format the advice for the findings, a line for each check, the worst first."""
    lines = (f"  {each.meaning}: {ADVICE[each.check]}" for each, *_ in by_check(findings))
    return "\n".join(["what to do", *lines])


def listed(finding: Finding) -> str:
    """Format a finding in a line, as compilers do: file, line, severity, check, message."""
    name = f"{finding.id}: " if finding.id else ""
    where = f"{finding.manifest}:{finding.line}: {finding.severity}: {finding.check}"
    return f"{where}: {name}{finding.message}"


def columns(totals_of: dict[str, Totals]) -> str:
    """Format the totals as a table, with a column for each manifest."""
    rows = [["", *totals_of]]
    for name in Totals._fields:
        values = [getattr(each, name) for each in totals_of.values()]
        rows.append([name.replace("_", " "), *(_shown(value) for value in values)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _shown(value: Any) -> str:
    match value:
        case None:
            return "-"
        case (float() as seconds, str() as id_):
            return f"{seconds:.2f} s, {id_}"
        case dict():
            rates = [f"{rate} Hz: {count}" for rate, count in value.items()]
            return ", ".join(rates) if len(rates) != 1 else rates[0].partition(":")[0]
        case float():
            return f"{value:.2f}"
    return str(value)


def verdict(findings: Sequence[Finding]) -> str:
    count = Counter(finding.severity for finding in findings)
    return ", ".join(
        f"{count[severity]} {severity}{'' if count[severity] == 1 else 's'}"
        for severity in SEVERITIES
    )


def as_json(findings: Sequence[Finding], totals_of: dict[str, Totals]) -> dict[str, Any]:
    return {
        "findings": [finding._asdict() for finding in findings],
        "advice": {finding.check: ADVICE[finding.check] for finding in findings},
        "manifests": {path: each._asdict() for path, each in totals_of.items()},
    }
