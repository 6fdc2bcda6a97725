"""Normalize the texts of a manifest: asrkit data normalize train.jsonl --output new.jsonl"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from asrkit.build import build_normalizer
from asrkit.cli.parser import complain
from asrkit.config import parse_config
from asrkit.data.checks import Facts, Rules, examine
from asrkit.data.checks.clean import rewrite
from asrkit.data.checks.measure import valid_entries
from asrkit.data.checks.report import table
from asrkit.data.manifest import ManifestError, Utterance, is_lhotse
from asrkit.errors import printable
from asrkit.text import is_visible
from asrkit.text.normalization import Changes, Normalization, Normalizer
from asrkit.training.dataset import text_encoder
from asrkit.training.labels import tokenizer_of

EXAMPLES = 3


def normalize(options: argparse.Namespace) -> int:
    path, changes = options.manifest, Changes()
    if is_lhotse(Path(path)):
        raise ManifestError(f"{path} is lhotse's: only plain manifests can be normalized")
    given = {name: getattr(options, name) for name in Normalization._fields}
    choices = Normalization(**{k: v for k, v in given.items() if v is not None})
    entries = valid_entries(path)
    normalizer = Normalizer(choices, (each.utterance.text or "" for each in entries))
    texts = {
        each.line: normalizer(each.utterance.text, changes)
        for each in entries
        if each.utterance.text
    }

    def changed(number: int, line: bytes) -> dict[str, Any] | None:
        values: dict[str, Any] = json.loads(line)
        return values | {"text": texts[number]} if texts.get(number) else None

    kept, all_ = rewrite(path, options.output, changed)
    empty = [each.utterance.id for each in entries if not texts.get(each.line)]
    report(changes, {options.output: [
        each.utterance.model_dump() | {"text": texts[each.line]}
        for each in entries if texts.get(each.line)
    ]})  # fmt: skip
    if empty:
        more = "; …" if len(empty) > EXAMPLES else ""
        named = "; ".join(map(printable, empty[:EXAMPLES]))
        complain("asrkit data normalize", f"left out {len(empty)}, empty text: {named}{more}")
    print(f"{options.output}: {kept} of {all_} utterances")
    return 1 if empty else 0


def report(changes: Changes, manifests: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    """Print the kinds of changes, and what remains odd in the new manifests, training set first."""
    print("changes" if changes.counts else "no text changed")
    for line in changes.lines():
        print(f"  {line}")
    facts = [
        Facts(path, number, Utterance.model_construct(**row))
        for path, rows in manifests.items()
        for number, row in enumerate(rows, start=1)
    ]
    config = parse_config({"data": {"train": "", "dev": ""}, "training": {"output_dir": ""}})
    spell = build_normalizer(config.text)
    tokenizer = tokenizer_of(config, [t for f in facts if is_visible(t := spell(f.text))])
    rules = Rules(text_encoder(config, tokenizer), 0.0, 0.0, 1.0)
    findings = examine(facts, rules, texts_only=True)
    print(f"remains odd\n{table(findings)}" if findings else "nothing odd remains", end="\n\n")
