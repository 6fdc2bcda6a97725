"""Going on from a model that was trained before, on other recordings or for other texts."""

import torch
from torch import Tensor, nn

from asrkit.checkpoint import load_model
from asrkit.config import Config
from asrkit.errors import UserError
from asrkit.model import BLANK, ConformerCTC, ConformerEncoder
from asrkit.model.conformer import ConformerLayer
from asrkit.text import Tokenizer


def start_from(name: str, model: ConformerCTC, tokenizer: Tokenizer, config: Config) -> int:
    """Take over the encoder with its normalisation, and the outputs of the labels that both have.

    Labels are the same if they are written alike, or but for case. All others stay as drawn. A
    model of more layers computes the same at first: those on top add nothing yet.

    Args:
        name: of a ready model, or the path of a model file.
        model: to change, freshly drawn.
        tokenizer: of its labels.
        config: of it.

    Returns:
        How many labels were known.

    Raises:
        UserError: if the file cannot be loaded, or holds a network of another shape, or a deeper
            one.
    """
    other = load_model(name)
    here, there = config.model.model_dump(), other.config.model.model_dump()
    free = {"dropout"} | ({"num_layers"} if here["num_layers"] > there["num_layers"] else set())
    different = [key for key in here if key not in free and here[key] != there[key]]
    if different:
        shapes = "; ".join(
            f"model.{key} is {there[key]} there, {here[key]} here" for key in different
        )
        raise UserError(f"training.start_from {name}: {shapes}")
    take_over(model.encoder, other.model.encoder.state_dict(), there["num_layers"])
    pairs = same_labels(other.tokenizer, tokenizer)
    old, new = map(list, zip(*pairs, strict=True))
    with torch.no_grad():
        model.head.weight[new] = other.model.head.weight[old]
        model.head.bias[new] = other.model.head.bias[old]
    return len(pairs) - 1


def take_over(encoder: ConformerEncoder, weights: dict[str, Tensor], depth: int) -> None:
    """The weights of an encoder of `depth` layers, for one that may have more.

    Every module of the layers above adds zero. The last norm's scale and shift move to the top:
    normalising again what is normalised changes nothing.
    """
    last, top = f"layers.{depth - 1}.norm.", f"layers.{len(encoder.layers) - 1}.norm."
    weights = {name.replace(last, top): weight for name, weight in weights.items()}
    encoder.load_state_dict({**encoder.state_dict(), **weights})
    for layer in encoder.layers[depth:]:
        assert isinstance(layer, ConformerLayer)
        modules = (layer.ffn1.project, layer.attention.out, layer.convolution.project)
        for linear in (*modules, layer.ffn2.project):
            nn.init.zeros_(linear.weight)
            nn.init.zeros_(linear.bias)


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
