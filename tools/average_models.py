"""Average the weights of models that began from one, into a new model file.

The labels are the first model's: of another, the rows of labels that both have. (Wortsman et al.
2022, Model soups: models fine-tuned from the same weights are in one basin, and their average is
often better than each.)
"""

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor

from asrkit.cli.parser import complain
from asrkit.cli.terms import add_terms, terms_of
from asrkit.errors import UserError
from asrkit.model_file import ModelFile, load_model, save_model
from asrkit.terms import Terms, inherited
from asrkit.training.warm_start import differences, same_labels


def averaged(parts: list[tuple[str, float]], given: Terms) -> tuple[ModelFile, list[str]]:
    """The first model with the weights of all, by their shares, and notes about its licence.

    Args:
        parts: name or path of a model, and its share; shares sum to 1.
        given: licence and languages of the average; those of the models if it names none.

    Raises:
        UserError: for another network than the first's, shares that do not sum to 1, or models with
            different licences where `given` names none.
    """
    total = sum(share for _, share in parts)
    if abs(total - 1.0) > 1e-6 or any(share <= 0 for _, share in parts):
        raise UserError(f"shares must be above 0 and sum to 1, got {total:g}")
    first = load_model(parts[0][0])
    own = first.model.state_dict()
    sources: dict[str, Terms] = {}
    mixed = {name: torch.zeros_like(each, dtype=torch.float64) for name, each in own.items()}
    for name, share in parts:
        other = load_model(name)
        if different := differences(first.config.model, other.config.model):
            raise UserError(f"{name} does not fit {parts[0][0]}: {different}")
        sources[name] = other.terms
        for key, each in relabelled(other, first).items():
            mixed[key] += share * each.double()
    first.model.load_state_dict({key: mixed[key].to(own[key].dtype) for key in own})
    average = [
        {"model": Path(name).name, "share": share, **sources[name].metadata()}
        for name, share in parts
    ]
    terms, notes = inherited(given, sources, "--licence")
    return first._replace(training={"average": average}, terms=terms), notes


def relabelled(other: ModelFile, first: ModelFile) -> dict[str, Tensor]:
    """The weights of a model, its head with the rows of another's labels: the latter's own rows
    where a label is missing."""
    weights = dict(other.model.state_dict())
    old, new = map(list, zip(*same_labels(other.tokenizer, first.tokenizer), strict=True))
    for key in ("head.weight", "head.bias"):
        rows = first.model.state_dict()[key].clone()
        rows[new] = weights[key][old]
        weights[key] = rows
    return weights


def main(argv: list[str] | None = None) -> int:
    arguments = argparse.ArgumentParser(
        "average_models", description=__doc__,
        epilog="example: python tools/average_models.py --output m.safetensors a.safetensors=0.5 "
        "small-en-alnum=0.5",
    )  # fmt: skip
    arguments.add_argument("--output", type=Path, required=True, help="the new model file")
    arguments.add_argument("models", nargs="+", metavar="MODEL=SHARE", help="shares sum to 1")
    add_terms(arguments, "that of the models")
    options = arguments.parse_args(argv)
    try:
        parts = [part.rpartition("=")[::2] for part in options.models]
        shares = [(name, float(share)) for name, share in parts]
        file, notes = averaged(shares, terms_of(options))
        save_model(options.output, file)
    except (UserError, ValueError) as error:
        print(f"average_models: error: {error}", file=sys.stderr)
        return 2
    for note in notes:
        complain("average_models", note)
    print(f"{options.output} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
