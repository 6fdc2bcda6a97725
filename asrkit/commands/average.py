"""Average the weights of models with a common start: asrkit average a.safetensors b.safetensors

Models that were fine-tuned from the same weights are often worse
than their average (Wortsman et al. 2022, Model soups).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from asrkit.cli.options import add_terms, terms_of
from asrkit.cli.parser import Parser, Target
from asrkit.errors import UserError, shown
from asrkit.terms import Terms, spelled

if TYPE_CHECKING:
    from asrkit.model_file import ModelFile


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit average", __doc__,
        "asrkit average one.safetensors two.safetensors --output mean.safetensors\n"
        "  asrkit average mine.safetensors=0.75 small-en-alnum=0.25 --output mean.safetensors",
    )  # fmt: skip
    arguments.add_argument(
        "models", nargs="+", metavar="MODEL[=SHARE]",
        help="model files; shares sum to 1 (default: equal ones)",
    )  # fmt: skip
    arguments.add_argument("--output", type=Target, required=True, help="the model file to write")
    add_terms(arguments, "that of the models")
    return arguments.run(average, argv)


Part = tuple[str, float]  # name or path of a model, and its share


def average(options: argparse.Namespace) -> int:
    from asrkit.model_file import save_model

    save_model(options.output, mean(parts_of(options.models), terms_of(options)))
    print(f"{options.output} written")
    return 0


def parts_of(models: list[str]) -> list[Part]:
    """Return models with their shares, equal ones where none is given."""
    named = [("", "", each) if Path(each).is_file() else each.rpartition("=") for each in models]
    if not any(name for name, _, _ in named):
        return [(each, 1 / len(models)) for each in models]
    try:
        parts = [(name, float(share)) for name, _, share in named if name]
    except ValueError as error:
        raise UserError(f"a share must be a number, as in MODEL=0.5: {error}") from None
    total = sum(share for _, share in parts)
    are_shares = abs(total - 1.0) <= 1e-6 and all(share > 0 for _, share in parts)
    if len(parts) < len(models) or not are_shares:  # also for NaN
        raise UserError(
            f"shares must be above 0 and sum to 1, got {total:g} for {len(parts)} of "
            f"{len(models)} models: give each model a share, or none"
        )
    return parts


def mean(parts: list[Part], given: Terms) -> ModelFile:
    """Return the first model with the mean weights of all."""
    import torch

    from asrkit.model_file import load_model
    from asrkit.training.warm_start import differences

    first = load_model(parts[0][0])
    own = first.model.state_dict()
    sources: dict[str, Terms] = {}
    total = {name: torch.zeros_like(each, dtype=torch.float64) for name, each in own.items()}
    for name, share in parts:
        other = load_model(name)
        other.require_trained()
        if different := differences(first.config.model, other.config.model):
            raise UserError(f"{name} does not fit {parts[0][0]}: {different}")
        if other.tokenizer.to_bytes() != first.tokenizer.to_bytes():
            raise UserError(f"{name} has other labels than {parts[0][0]}: average equal ones")
        sources[name] = other.terms
        for key, each in other.model.state_dict().items():
            total[key] += share * each.double()
    first.model.load_state_dict({key: total[key].to(own[key].dtype) for key in own})
    record = [
        {"model": Path(name).name, "share": share, **sources[name].metadata()}
        for name, share in parts
    ]
    licences = {
        spelled(each.licence): each.licence
        for each in reversed([*sources.values()])
        if each.licence
    }
    if given.licence is None and len(licences) > 1:
        named = ", ".join(map(shown, licences.values()))
        raise UserError(f"the models have different licences: {named}; choose one by --licence")
    codes = {code: 0 for each in sources.values() for code in each.languages}
    stated = Terms(next(iter(licences.values()), None), tuple(codes))
    return first._replace(training={"average": record}, terms=given.or_else(stated))
