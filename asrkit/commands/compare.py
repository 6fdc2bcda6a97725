"""Compare two models on the same recordings: asrkit compare BASE OTHER dev.jsonl"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from asrkit.cli.options import MODEL, add_batch, add_device, add_recognizer
from asrkit.cli.parser import Parser
from asrkit.commands.evaluate import recognized
from asrkit.errors import UserError

if TYPE_CHECKING:
    from asrkit.data.manifest import LeftOut
    from asrkit.evaluation.wer import ErrorRate


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit compare", __doc__,
        "asrkit compare exp/base/model.safetensors exp/new/model.safetensors dev.jsonl\n"
        "  asrkit compare BASE0,BASE1 NEW0,NEW1 --chunk-ms 320 dev.jsonl   # two seeds of each",
    )  # fmt: skip
    for name in ("base", "other"):
        arguments.add_argument(
            name, type=lambda text: text.split(","), metavar=name.upper(),
            help=f"{MODEL}; the seeds of one training are separated by commas",
        )  # fmt: skip
    arguments.add_argument("manifest", help="recordings with their texts")
    add_device(arguments)
    add_recognizer(arguments)
    add_batch(arguments)
    arguments.add_argument("--format", choices=["text", "json"], default="text")
    return arguments.run(compare, argv)


class Errors(NamedTuple):
    """The errors of a model in each utterance, by id."""

    context: str
    each: dict[str, ErrorRate]

    @property
    def rate(self) -> float:
        """The error rate in percent."""
        from asrkit.evaluation.wer import total

        return total(self.each.values()).rate or 0.0


def compare(options: argparse.Namespace) -> int:
    import numpy as np

    from asrkit.cli.recognizer import name_left_out
    from asrkit.evaluation.wer import paired, total

    left_out: list[LeftOut] = []
    sides = {
        name: [errors_of(model, options, left_out) for model in models]
        for name, models in (("BASE", options.base), ("OTHER", options.other))
    }
    status = name_left_out("asrkit compare", left_out)
    units, *others = (
        {id: rate.reference_units for id, rate in model.each.items()}
        for models in sides.values() for model in models
    )  # fmt: skip
    if not any(units.values()):
        raise UserError(f"{options.manifest} has no recording with words to compare models on")
    if any(each != units for each in others):
        raise UserError(
            "the models count the words of the texts differently: compare models of the same "
            "settings in text"
        )
    base, other = (
        np.array([[model.each[id].errors for id in units] for model in models])
        for models in sides.values()
    )
    difference = paired(base, other, np.array(list(units.values())))
    unit_rate = total(sides["BASE"][0].each.values()).name
    if options.format == "json":
        rates = {name.lower(): [model.rate for model in models] for name, models in sides.items()}
        counts = {"utterances": len(units), unit_rate.lower(): rates}
        print(json.dumps({**counts, **difference._asdict()}, indent=1))
        return status
    print(rates_table(sides, unit_rate), end="\n\n")
    print(f"OTHER - BASE, {len(units)} utterances: {difference}")
    if len(base) == len(other) == 1:
        print("one model a side: another seed may change this; give several, as in BASE0,BASE1")
    return status


def errors_of(model: str, options: argparse.Namespace, left_out: list[LeftOut]) -> Errors:
    from asrkit.cli.recognizer import load_recognizer

    recognizer = load_recognizer(argparse.Namespace(**vars(options) | {"model": model}))
    outcomes = recognized(options, options.manifest, {"": recognizer}, left_out)
    return Errors(recognizer.context, {each[""].id: each[""].errors for each in outcomes})


def rates_table(sides: Mapping[str, Sequence[Errors]], unit_rate: str) -> str:
    from asrkit.evaluation.tables import table
    from asrkit.evaluation.wer import rate_shown

    rows = []
    for name, models in sides.items():
        rates = [model.rate for model in models]
        shown = map(rate_shown, (statistics.fmean(rates), min(rates), max(rates)))
        chunks = ", ".join(dict.fromkeys(model.context for model in models))
        rows.append([name, str(len(models)), chunks, *shown])
    return table(("", "models", "chunk", unit_rate, "lowest", "highest"), rows)
