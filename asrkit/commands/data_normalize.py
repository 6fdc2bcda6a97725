"""Normalize the texts of a manifest: asrkit data normalize train.jsonl --output new.jsonl"""

from __future__ import annotations

import argparse
import json
from typing import Any

from asrkit.cli.parser import Parser, Target, complain


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit data normalize", __doc__,
        "asrkit data normalize train.jsonl --output new.jsonl --numbers en\n\n"
        "exit status: 0 normalized, 1 normalized but texts became empty, 2 nothing was written",
    )  # fmt: skip
    arguments.add_argument("manifest", help="a JSONL manifest")
    arguments.add_argument("--output", required=True, type=Target, metavar="FILE", help="manifest")
    arguments.add_argument(
        "--case", choices=["keep", "lower", "upper"], default="keep", help="case (default keep)",
    )  # fmt: skip
    arguments.add_argument(
        "--punctuation", choices=["keep", "remove"], default="keep",
        help="punctuation, without signs inside a word (default keep)",
    )  # fmt: skip
    arguments.add_argument(
        "--brackets", choices=["remove", "words", "keep"], default="remove",
        help="brackets and marked words such as [laughs]: remove them, keep their words, or keep "
        "both (default remove)",
    )  # fmt: skip
    arguments.add_argument(
        "--numbers", metavar="LANGUAGE",
        help="language in which whole numbers become words, such as en (default: digits stay)",
    )  # fmt: skip
    return arguments.run(normalize, argv)


def normalize(options: argparse.Namespace) -> int:
    from asrkit.data.checks.clean import rewrite
    from asrkit.data.checks.measure import valid_entries
    from asrkit.data.corpora.source import Omitted
    from asrkit.text.normalization import Normalization, Normalizer

    path = options.manifest
    entries = valid_entries(path)
    choices = {name: getattr(options, name) for name in Normalization._fields}
    normalizer = Normalizer(Normalization(**choices))
    texts = {each.line: normalizer(each.text) for each in entries if each.text}

    def changed(number: int, line: bytes) -> dict[str, Any] | None:
        return json.loads(line) | {"text": texts[number]} if texts.get(number) else None

    kept, all_ = rewrite(path, options.output, changed)
    print("changes" if normalizer.changes else "no text changed")
    for line in normalizer.lines():
        print(f"  {line}")
    omitted = Omitted()
    for each in entries:
        if not texts.get(each.line):
            omitted.add("empty text", each.utterance.id)
    for line in omitted.lines():
        complain("asrkit data normalize", line)
    print(f"{options.output}: {kept} of {all_} utterances")
    return 1 if omitted.counts else 0
