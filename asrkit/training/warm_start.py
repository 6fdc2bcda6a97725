"""Fine-tuning: training that starts from a model, whose labels may differ."""

from collections.abc import Iterable

from asrkit.build import build_normalizer
from asrkit.config import Config, ModelConfig, TextConfig
from asrkit.errors import UserError
from asrkit.model import BLANK, Network
from asrkit.model_file import load_model
from asrkit.text import TextError, Tokenizer


def start_from(name: str, model: Network, tokenizer: Tokenizer, config: Config) -> int:
    """Copy a model's encoder with its normalisation, and the head's rows of shared labels.

    Labels are shared if their texts are equal, ignoring case. The rows of other labels keep their
    random weights.

    Args:
        name: name of a ready model, or path of a model file.
        model: model to change.
        tokenizer: tokenizer of `model`.
        config: configuration of `model`.

    Returns:
        The number of shared labels.

    Raises:
        UserError: if the file cannot be loaded, or its network has another shape.
    """
    other = load_model(name)
    if different := differences(config.model, other.config.model):
        raise UserError(f"training.start_from {name}: {different}")
    model.encoder.load_state_dict(other.model.encoder.state_dict())
    pairs = same_labels(other.tokenizer, tokenizer)
    old, new = map(list, zip(*pairs, strict=True))
    model.head.copy_labels(other.model.head, old, new)
    return len(pairs) - 1


def differences(here: ModelConfig, there: ModelConfig) -> str:
    """Describe the settings that change the shape or meaning of weights; "" if they are equal."""
    free = ("dropout", "kernels")  # no weight depends on them
    ours, theirs = here.model_dump(), there.model_dump()
    return "; ".join(
        f"model.{key} is {theirs[key]} there, {ours[key]} here"
        for key in ours
        if key not in free and ours[key] != theirs[key]
    )


def kept_tokenizer(name: str, config: TextConfig, texts: Iterable[str]) -> Tokenizer | None:
    """Return the first model's tokenizer if it has sub-words and can write all texts, else None.

    New sub-words would be other labels, whose rows of the head are untrained.

    Args:
        name: name of a ready model, or path of a model file.
        config: text settings; the model's must be the same.
        texts: texts to train on.

    Raises:
        UserError: if the file cannot be loaded.
    """
    if config.tokenizer not in ("unigram", "bpe"):
        return None
    other, normalize = load_model(name), build_normalizer(config)
    if other.config.text != config:
        return None
    try:
        for text in texts:
            other.tokenizer.encode(normalize(text))
    except TextError:
        return None
    return other.tokenizer


def same_labels(old: Tokenizer, new: Tokenizer) -> list[tuple[int, int]]:
    """Return pairs of ids (old, new) of the blank and of each shared label."""
    exact = {old.piece(token): token for token in range(1, old.vocab_size)}
    folded = {piece.casefold(): token for piece, token in exact.items()}
    pairs = [(BLANK, BLANK)]
    for token in range(1, new.vocab_size):
        piece = new.piece(token)
        known = exact.get(piece, folded.get(piece.casefold()))
        if known is not None:
            pairs.append((known, token))
    return pairs
