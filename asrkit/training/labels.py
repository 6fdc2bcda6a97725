"""The labels of a training: of the model that it starts from, or trained on its texts."""

import logging
from collections.abc import Sequence

from asrkit.build import build_normalizer, train_tokenizer, with_end_of_turn
from asrkit.config.schema import Config
from asrkit.errors import UserError, shown
from asrkit.model_file import load_model
from asrkit.text import TextError, Tokenizer

logger = logging.getLogger(__name__)

EXAMPLES = 10


def keeps_labels(config: Config) -> bool:
    """Return whether a training keeps all labels of the model that it starts from."""
    pieces = config.text.tokenizer == "pieces"
    return config.training.start_from is not None and (pieces or config.training.keep_labels)


def tokenizer_of(config: Config, texts: Sequence[str]) -> Tokenizer:
    """Return the tokenizer of a training.

    With `training.start_from`, sub-words of an imported model and `training.keep_labels` keep the
    labels of that model.
    """
    name, text = config.training.start_from, config.text
    if name is not None and keeps_labels(config):
        return extended_tokenizer(name, config, texts)
    return train_tokenizer(text, texts)


def extended_tokenizer(name: str, config: Config, texts: Sequence[str]) -> Tokenizer:
    """Return the first model's tokenizer, extended by what it lacks, which is logged.

    Args:
        name: name of a ready model, or path of a model file.
    """
    other, kind = load_model(name), config.text.tokenizer
    if other.config.text.tokenizer != kind:
        raise UserError(
            f"training.start_from {name}: text.tokenizer is {other.config.text.tokenizer} there, "
            f"{kind} here: leave it out, or set training.keep_labels=false"
            f"{', and another text.tokenizer' * (kind == 'pieces')}"
        )
    normalized = [*map(build_normalizer(config.text), texts)]
    try:
        tokenizer = with_end_of_turn(other.tokenizer.extended(normalized), config.text)
    except TextError as error:
        raise TextError(
            f"training.start_from {name}: {error}; respell the texts, or train new sub-words with "
            "training.keep_labels=false"
        ) from None
    first = other.tokenizer.vocab_size
    if tokenizer.vocab_size > first:
        new = [tokenizer.piece(token).strip() for token in range(first, tokenizer.vocab_size)]
        named = ", ".join(map(shown, new[:EXAMPLES])) + ", …" * (len(new) > EXAMPLES)
        logger.warning("training.start_from %s lacks %d of the labels: %s", name, len(new), named)
    return tokenizer
