"""Compare two models on the same recordings: asrkit compare BASE OTHER dev.jsonl"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import TYPE_CHECKING

from asrkit.cli.options import MODEL, add_device, add_recognizer
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
    arguments.add_argument("--format", choices=["text", "json"], default="text")
    return arguments.run(compare, argv)


# A model's context, and the errors of each utterance by id.
Side = list[tuple[str, dict[str, "ErrorRate"]]]


def compare(options: argparse.Namespace) -> int:
    import numpy as np

    from asrkit.cli.recognizer import name_left_out
    from asrkit.evaluation.tables import table
    from asrkit.evaluation.wer import paired, rate_shown, total

    left_out: list[LeftOut] = []
    sides: dict[str, Side] = {
        name: [errors_of(model, options, left_out) for model in models]
        for name, models in (("BASE", options.base), ("OTHER", options.other))
    }
    status = name_left_out("asrkit compare", left_out)
    models = [each for side in sides.values() for _, each in side]
    units, *others = ({id: rate.reference_units for id, rate in each.items()} for each in models)
    if not any(units.values()):
        raise UserError(f"{options.manifest} has no recording with words to compare models on")
    if any(each != units for each in others):
        raise UserError(
            "the models count the words of the texts differently: compare models of the same "
            "settings in text"
        )
    base, other = (
        np.array([[each[id].errors for id in units] for _, each in side]) for side in sides.values()
    )
    difference = paired(base, other, np.array(list(units.values())))
    unit_rate = total(models[0].values()).name
    rates = {
        name: [total(each.values()).rate or 0.0 for _, each in side] for name, side in sides.items()
    }
    if options.format == "json":
        named = {name.lower(): each for name, each in rates.items()}
        counts = {"utterances": len(units), unit_rate.lower(): named}
        print(json.dumps({**counts, **difference._asdict()}, indent=1))
        return status
    rows = [
        [
            name, str(len(side)), ", ".join(dict.fromkeys(context for context, _ in side)),
            *(rate_shown(of(rates[name])) for of in (statistics.fmean, min, max)),
        ]
        for name, side in sides.items()
    ]  # fmt: skip
    print(table(("", "models", "chunk", unit_rate, "lowest", "highest"), rows), end="\n\n")
    print(f"OTHER - BASE, {len(units)} utterances: {difference}")
    if len(base) == len(other) == 1:
        print("one model a side: another seed may change this; give several, as in BASE0,BASE1")
    return status


def errors_of(
    model: str, options: argparse.Namespace, left_out: list[LeftOut]
) -> tuple[str, dict[str, ErrorRate]]:
    from asrkit.cli.recognizer import load_recognizer

    recognizer = load_recognizer(argparse.Namespace(**vars(options) | {"model": model}))
    outcomes = recognized(options, options.manifest, {"": recognizer}, left_out)
    return recognizer.context, {each[""].id: each[""].errors for each in outcomes}
