"""Normalize the texts of a manifest: asrkit data normalize train.jsonl --output new.jsonl"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from asrkit.cli.parser import Parser, Target, complain
from asrkit.errors import printable

if TYPE_CHECKING:
    from asrkit.text.normalization import Normalizer


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit data normalize", __doc__,
        "asrkit data normalize train.jsonl --output new.jsonl --numbers en\n\n"
        "exit status: 0 normalized, 1 normalized but texts became empty, 2 nothing was written",
    )  # fmt: skip
    arguments.add_argument("manifest", help="a JSONL manifest")
    arguments.add_argument("--output", required=True, type=Target, metavar="FILE", help="manifest")
    add_normalization(arguments)
    return arguments.run(normalize, argv)


def add_normalization(arguments: Parser) -> None:
    """Add the choices of a normalisation; the fields of `text.normalization.Normalization`."""
    group = arguments.group("texts")
    group.add_argument("--case", choices=["keep", "lower", "upper"], help="case (default keep)")
    group.add_argument(
        "--punctuation", choices=["keep", "remove"],
        help="punctuation, without signs inside a word (default keep)",
    )  # fmt: skip
    group.add_argument(
        "--brackets", choices=["remove", "words", "keep"],
        help="brackets and marked words such as [laughs]: remove them, keep their words, or keep "
        "both (default remove)",
    )  # fmt: skip
    group.add_argument(
        "--numbers", metavar="LANGUAGE",
        help="language in which digits become words, such as en (default: digits stay)",
    )  # fmt: skip


EXAMPLES = 3


def normalize(options: argparse.Namespace) -> int:
    from asrkit.data.checks.clean import rewrite
    from asrkit.data.checks.measure import valid_entries
    from asrkit.text.normalization import Normalization, Normalizer

    path = options.manifest
    given = {name: getattr(options, name) for name in Normalization._fields}
    choices = Normalization(**{k: v for k, v in given.items() if v is not None})
    entries = valid_entries(path)
    normalizer = Normalizer(choices)
    texts = {each.line: normalizer(each.utterance.text) for each in entries if each.utterance.text}

    def changed(number: int, line: bytes) -> dict[str, Any] | None:
        values: dict[str, Any] = json.loads(line)
        return values | {"text": texts[number]} if texts.get(number) else None

    kept, all_ = rewrite(path, options.output, changed)
    empty = [each.utterance.id for each in entries if not texts.get(each.line)]
    report(normalizer, {options.output: [
        each.utterance.model_dump() | {"text": texts[each.line]}
        for each in entries if texts.get(each.line)
    ]})  # fmt: skip
    if empty:
        more = "; …" if len(empty) > EXAMPLES else ""
        named = "; ".join(map(printable, empty[:EXAMPLES]))
        complain("asrkit data normalize", f"left out {len(empty)}, empty text: {named}{more}")
    print(f"{options.output}: {kept} of {all_} utterances")
    return 1 if empty else 0


def report(normalizer: Normalizer, manifests: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    """Print the kinds of changes, and what remains odd in the new manifests, training set first."""
    from asrkit.commands.data_check import default_config, encoder_of
    from asrkit.data.checks import Facts, Rules, examine
    from asrkit.data.checks.report import table
    from asrkit.data.recording import Recording

    print("changes" if normalizer.changes else "no text changed")
    for line in normalizer.lines():
        print(f"  {line}")
    facts = [
        Facts(path, number, Recording.model_construct(**row))
        for path, rows in manifests.items()
        for number, row in enumerate(rows, start=1)
    ]
    rules = Rules(encoder_of(default_config(), (each.text for each in facts)), 0.0, 0.0)
    findings = examine(facts, rules, texts_only=True)
    print(f"remains odd\n{table(findings)}" if findings else "nothing odd remains", end="\n\n")
