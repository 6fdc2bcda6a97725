"""The labels of a training: of the model that it starts from, or trained on its texts."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence

from asrkit.build import build_normalizer, train_tokenizer, with_end_of_turn
from asrkit.config import Config, TextConfig
from asrkit.errors import UserError, shown
from asrkit.model_file import load_model
from asrkit.text import SentencePieceTokenizer, TextError, Tokenizer

logger = logging.getLogger(__name__)

EXAMPLES = 10


def keeps_labels(config: Config) -> bool:
    """Return whether a training keeps all labels of the model that it starts from."""
    pieces = config.text.tokenizer == "pieces"
    return config.training.start_from is not None and (pieces or config.training.keep_labels)


def tokenizer_of(config: Config, texts: Sequence[str]) -> Tokenizer:
    """Return the tokenizer of a training.

    With `training.start_from`, sub-words of an imported model and `training.keep_labels` keep the
    labels of that model. Other sub-words are kept if they can write all texts.
    """
    name, text = config.training.start_from, config.text
    if name is not None and keeps_labels(config):
        return extended_tokenizer(name, text, texts)
    kept = None if name is None else kept_tokenizer(name, text, texts)
    found = kept or train_tokenizer(text, texts)
    if isinstance(found, SentencePieceTokenizer) and found.vocab_size < text.vocab_size:
        logger.warning(
            "text.vocab_size is %d, but the texts give only %d sub-words: these are the labels",
            text.vocab_size, found.vocab_size,
        )  # fmt: skip
    return found


def extended_tokenizer(name: str, config: TextConfig, texts: Iterable[str]) -> Tokenizer:
    """Return the first model's tokenizer, extended by what it lacks, which is logged.

    Args:
        name: name of a ready model, or path of a model file.
    """
    other = load_model(name)
    if other.config.text.tokenizer != config.tokenizer:
        raise UserError(
            f"training.start_from {name}: text.tokenizer is {other.config.text.tokenizer} there, "
            f"{config.tokenizer} here: leave it out, or set training.keep_labels=false"
            f"{', and another text.tokenizer' * (config.tokenizer == 'pieces')}"
        )
    normalized = [*map(build_normalizer(config), texts)]
    try:
        found = with_end_of_turn(other.tokenizer.extended(normalized), config)
    except TextError as error:
        raise TextError(
            f"training.start_from {name}: {error}; respell the texts, or train new sub-words with "
            "training.keep_labels=false"
        ) from None
    if found.vocab_size > other.tokenizer.vocab_size:
        logger.warning("%s", appended(name, other.tokenizer.vocab_size, found, normalized))
    return found


def appended(name: str, first: int, tokenizer: Tokenizer, texts: Sequence[str]) -> str:
    """Describe the labels from number `first` on, with the number of texts that have each."""
    counts = Counter(
        token for text in texts for token in sorted({*tokenizer.encode(text)}) if token >= first
    )
    named = ", ".join(
        f"{shown(tokenizer.piece(token).strip() or ' ')} in {times}"
        for token, times in counts.most_common(EXAMPLES)
    )
    return (
        f"training.start_from {name} lacks {len(counts)} of the labels: {named}"
        f"{', …' * (len(counts) > EXAMPLES)} of {len(texts)} texts"
    )


def kept_tokenizer(name: str, config: TextConfig, texts: Iterable[str]) -> Tokenizer | None:
    """Return the first model's tokenizer if it has sub-words and can write all texts, else None.

    New sub-words would be other labels, whose rows of the head are untrained.

    Args:
        name: name of a ready model, or path of a model file.
        config: text settings; the model's must be the same.
    """
    if config.tokenizer not in ("unigram", "bpe"):
        return None
    other = load_model(name)
    if other.config.text != config:
        return None
    try:
        return other.tokenizer.extended(map(build_normalizer(config), texts))
    except TextError:
        return None
