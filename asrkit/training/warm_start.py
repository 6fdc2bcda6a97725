"""Going on from a model that was trained before, on other recordings or for other texts."""

import torch

from asrkit.config import Config
from asrkit.errors import UserError
from asrkit.model import BLANK, ConformerCTC
from asrkit.model_file import load_model
from asrkit.text import Tokenizer


def start_from(name: str, model: ConformerCTC, tokenizer: Tokenizer, config: Config) -> int:
    """Take over the encoder with its normalisation, and the outputs of the labels that both have.

    Labels are the same if they are written alike, or but for case. All others stay as drawn.

    Args:
        name: of a ready model, or the path of a model file.
        model: to change.
        tokenizer: of its labels.
        config: of it.

    Returns:
        How many labels were known.

    Raises:
        UserError: if the file cannot be loaded, or holds a network of another shape.
    """
    other = load_model(name)
    here, there = config.model.model_dump(), other.config.model.model_dump()
    different = [key for key in here if key != "dropout" and here[key] != there[key]]
    if different:
        shapes = "; ".join(
            f"model.{key} is {there[key]} there, {here[key]} here" for key in different
        )
        raise UserError(f"training.start_from {name}: {shapes}")
    model.encoder.load_state_dict(other.model.encoder.state_dict())
    pairs = same_labels(other.tokenizer, tokenizer)
    old, new = map(list, zip(*pairs, strict=True))
    with torch.no_grad():
        model.head.weight[new] = other.model.head.weight[old]
        model.head.bias[new] = other.model.head.bias[old]
    return len(pairs) - 1


def same_labels(old: Tokenizer, new: Tokenizer) -> list[tuple[int, int]]:
    """Ids of the blank and of each label that both write."""
    exact = {old.piece(token): token for token in range(1, old.vocab_size)}
    folded = {piece.casefold(): token for piece, token in exact.items()}
    pairs = [(BLANK, BLANK)]
    for token in range(1, new.vocab_size):
        piece = new.piece(token)
        known = exact.get(piece, folded.get(piece.casefold()))
        if known is not None:
            pairs.append((known, token))
    return pairs
