"""The page, from its template page.html: every value is text, and is escaped inside markup."""

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import jinja2
import yaml

from asrkit.evaluation import Score
from asrkit.evaluation.wer import rate_shown, total
from asrkit.evaluation.written import rules_of
from asrkit.model_file import ModelFile
from asrkit.report.training import context_phrase, facts, tiles
from asrkit.report.words import Pair, Recognized, by_duration, confusions, grouped

FOLDER = Path(__file__).parent
PARTS = {  # of the page, by their anchors
    "scores": "Scores", "worst": "Worst utterances", "confusions": "Confusions",
    "groups": "Duration and speaker",
}  # fmt: skip
SIGNS = {"substitution": "≠", "deletion": "−", "insertion": "+", "equal": ""}
MOST = 15  # rows of a list of confusions


def page(
    name: str, file: ModelFile, scores: dict[str, Score], chunk: str, decoded: str,
    recognized: Sequence[Recognized], worst: Sequence[tuple[Recognized, str | None]], command: str,
) -> str:  # fmt: skip
    """Return the whole document. Its policy forbids loading, and all scripts except its own.

    Args:
        name: name of the training or of the model file.
        chunk: name of the recogniser whose utterances these are.
        decoded: description of the corpus and the decoding.
        worst: utterances to show unit by unit, with the URL of their audio.
        command: command that makes the page.
    """
    rate = total(each.counts for each in recognized)
    speakers = grouped(recognized, lambda each: each.speaker)
    speakers.sort(key=lambda group: (-(group.counts.rate or 0.0), group.name))
    style, script = (
        (FOLDER / name).read_text(encoding="utf-8") for name in ("page.css", "page.js")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment().get_template("page.html").render(
        title=name, scores=scores, chunk=chunk, decoded=decoded, worst=worst,
        command=command, parts=PARTS, signs=SIGNS, most=MOST,
        policy="default-src 'none'; style-src 'unsafe-inline'; media-src data:; "
        f"script-src 'sha256-{digest}'",
        style=style, script=script,
        tiles=tiles(scores, chunk, file), facts=facts(file),
        intervals={name: score.interval for name, score in scores.items()},
        written={name: score.written for name, score in scores.items() if score.written},
        rules=rules_of(file),
        configuration=yaml.safe_dump(
            file.config.model_dump(mode="json"), sort_keys=False, allow_unicode=True
        ),
        confusions=confusions(recognized), rate=rate,
        by_duration=by_duration(recognized), by_speaker=speakers,
    )  # fmt: skip


def environment() -> jinja2.Environment:
    """Return the environment of the template, with its filters."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER), autoescape=True,
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.filters |= {
        "rate": rate_shown, "context": context_phrase, "about": about,
        "ranked": ranked, "between": lambda each: f"{each.low:.2f} to {each.high:.2f}",
    }  # fmt: skip
    return made


def about(each: Recognized) -> str:
    counts = each.counts
    errors = f"{counted(counts.errors, 'error')} in {counted(counts.reference_units, counts.unit)}"
    speaker = f" · speaker {each.speaker}" if each.speaker else ""
    return f"{errors} · {each.seconds:.1f} s{speaker}"


def counted(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def ranked(counts: Counter[Pair]) -> list[tuple[Pair, int]]:
    """Sort pairs with their counts, the most frequent first, then alphabetically."""
    return sorted(
        counts.items(),
        key=lambda item: (-item[1], item[0].reference or "", item[0].hypothesis or ""),
    )
