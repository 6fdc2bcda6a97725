"""Average the weights of models with a common start: asrkit average a.safetensors b.safetensors

Models that were fine-tuned from the same weights are often worse
than their average (Wortsman et al. 2022, Model soups).
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from asrkit.cli.options import add_terms, terms_of, without_torch
from asrkit.cli.parser import Parser, Target
from asrkit.errors import UserError, shown
from asrkit.terms import Terms, spelled

if TYPE_CHECKING:
    from asrkit.model_file import ModelFile


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit average", __doc__,
        "asrkit average one.safetensors two.safetensors --output mean.safetensors\n"
        "  asrkit average MINE MINE MINE small-en-alnum --output mean.safetensors",
    )  # fmt: skip
    arguments.add_argument(
        "models", nargs="+", metavar="MODEL",
        help="model files; a model that is named twice has twice the share",
    )  # fmt: skip
    arguments.add_argument("--output", type=Target, required=True, help="the model file to write")
    add_terms(arguments, "that of the models")
    return arguments.run(average, argv)


def average(options: argparse.Namespace) -> int:
    from asrkit.model_file import save_model

    save_model(options.output, mean(options.models, terms_of(options)))
    print(f"{options.output} written\n{without_torch(options.output)}")
    return 0


def mean(models: list[str], given: Terms) -> ModelFile:
    """Return the first model with the mean weights of all."""
    import torch

    from asrkit.model_file import load_model
    from asrkit.training.warm_start import differences

    shares = {name: count / len(models) for name, count in Counter(models).items()}
    first = load_model(models[0])
    own = first.model.state_dict()
    sources: dict[str, Terms] = {}
    total = {name: torch.zeros_like(each, dtype=torch.float64) for name, each in own.items()}
    for name, share in shares.items():
        other = load_model(name)
        other.runnable.require_trained()
        if different := differences(first.config.model, other.config.model):
            raise UserError(f"{name} does not fit {models[0]}: {different}")
        if other.tokenizer.to_bytes() != first.tokenizer.to_bytes():
            raise UserError(f"{name} has other labels than {models[0]}: average equal ones")
        sources[name] = other.terms
        for key, each in other.model.state_dict().items():
            total[key] += share * each.double()
    first.model.load_state_dict({key: total[key].to(own[key].dtype) for key in own})
    record = [
        {"model": Path(name).name, "share": share, **sources[name].metadata()}
        for name, share in shares.items()
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
