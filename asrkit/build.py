"""Building what runs a model from a configuration, without torch; `build_network` has the rest."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asrkit import audio, search
from asrkit.audio import Frontend
from asrkit.config.kinds import SearchConfig
from asrkit.config.running import LanguageModelConfig, ModelPart
from asrkit.config.training import TextConfig
from asrkit.errors import UserError, printable, shown
from asrkit.lm import (
    Hotwords,
    LanguageModel,
    TokenFusion,
    Weighted,
    WordFusion,
    read_language_model,
    weighed,
)
from asrkit.search import Fusion, Search
from asrkit.text import (
    END_OF_TURN,
    CharTokenizer,
    PieceTokenizer,
    SentencePieceTokenizer,
    TextError,
    Tokenizer,
    WordTokenizer,
    end_of_turn,
    normalize,
    spoken,
)
from asrkit.text.graphemes import complete_units, units

if TYPE_CHECKING:
    from asrkit.config.model import ModelConfig

logger = logging.getLogger(__name__)

FUSIONS: dict[str, Callable[[Weighted, Sequence[str]], WordFusion | TokenFusion]] = {
    "words": partial(WordFusion, divide=complete_units),
    "tokens": TokenFusion,
}
TOKENIZERS: dict[str, Any] = {
    "characters": CharTokenizer,
    "words": WordTokenizer,
    "unigram": SentencePieceTokenizer,
    "bpe": SentencePieceTokenizer,
    "pieces": PieceTokenizer,
}


def build_frontend(config: "ModelConfig | ModelPart") -> Frontend:
    """Return the frontend that computes the network's features."""
    options = config.frontend.model_dump()
    return audio.build_frontend(options, config.num_mels, config.rate.lead_frames)


def build_normalizer(config: TextConfig) -> Callable[[str], str]:
    """Return the function that normalises a text's case, Unicode form (NFC) and spaces."""
    return partial(normalize, case=config.case)


def train_tokenizer(config: TextConfig, texts: Iterable[str]) -> Tokenizer:
    """Train a tokenizer on texts, which are normalised here."""
    texts, kind = map(build_normalizer(config), texts), TOKENIZERS[config.tokenizer]
    if kind is SentencePieceTokenizer:
        labels = [END_OF_TURN] if config.end_of_turn else []
        return SentencePieceTokenizer.train(texts, config.vocab_size, config.tokenizer, labels)
    if kind is PieceTokenizer:
        raise TextError(
            "text.tokenizer pieces is for imported models: train unigram or bpe, or name the model "
            "in training.start_from"
        )
    return with_end_of_turn(kind.train(texts), config)


def with_end_of_turn(tokenizer: Tokenizer, config: TextConfig) -> Tokenizer:
    """Return the tokenizer with the label of `text.end_of_turn`, if the configuration has it."""
    if not config.end_of_turn or end_of_turn(tokenizer) is not None:
        return tokenizer
    return tokenizer.with_label(END_OF_TURN)


def read_tokenizer(config: TextConfig, data: bytes) -> Tokenizer:
    """Read the tokenizer from its bytes in a model file."""
    return TOKENIZERS[config.tokenizer].from_bytes(data)


def build_fusion(
    config: LanguageModelConfig,
    searching: SearchConfig,
    tokenizer: Tokenizer,
    model: LanguageModel | None = None,
) -> WordFusion | TokenFusion:
    """The fusion of a language model with a search.

    Args:
        model: language model, if `config.path` has been read before; then no words that do not fit
            are logged.
    """
    if not search.KINDS[searching.kind].takes_fusion:
        able = " and ".join(name for name, kind in search.KINDS.items() if kind.takes_fusion)
        raise UserError(f"search {searching.kind} takes no language model; {able} does")
    read = read_language_model(config.path) if model is None else model
    try:
        weighted = Weighted(read, config.weight, config.word_bonus)
        fusion = FUSIONS[config.units](weighted, pieces_of(tokenizer))
    except ValueError as error:
        raise UserError(f"language model {shown(Path(config.path))}: {error}") from None
    if model is None and (misfit := fusion.misfit()):
        logger.warning("language model %s: %s", shown(Path(config.path)), printable(misfit))
    return fusion


def build_hotwords(
    hotwords: Mapping[str, float] | Iterable[str],
    tokenizer: Tokenizer,
    normalizer: Callable[[str], str],
) -> Hotwords:
    """Return the fusion of hotwords with a search, by the weight of each of their units.

    Phrases that are equal after normalisation get the highest of their weights.
    """
    bonuses: dict[str, float] = {}
    for phrase, weight in weighed(hotwords).items():
        text = hotword_text(phrase, tokenizer, normalizer)
        bonuses[text] = max(bonuses.get(text, 0.0), weight * len(units(text)))
    try:
        return Hotwords(bonuses, pieces_of(tokenizer))
    except ValueError as error:
        raise UserError(f"hotwords: {error}") from None


def hotword_text(phrase: str, tokenizer: Tokenizer, normalizer: Callable[[str], str]) -> str:
    """Return a hotword as the recogniser writes it."""
    text = normalizer(phrase)
    try:
        if not tokenizer.encode(text):
            raise TextError("it has no word")
    except TextError as error:
        raise UserError(f"hotword {shown(phrase)}: {error}") from None
    return text


def refused_hotwords(
    phrases: Iterable[str], tokenizer: Tokenizer, normalizer: Callable[[str], str]
) -> dict[str, str]:
    """Return the phrases that `build_hotwords` rejects, with the reason for each."""
    refused = {}
    for phrase in phrases:
        try:
            weighed([phrase])
            hotword_text(phrase, tokenizer, normalizer)
        except UserError as error:
            refused[phrase] = str(error)
    return refused


def pieces_of(tokenizer: Tokenizer) -> list[str]:
    """Return the text of each token, by id; "" for the blank and for labels that are not text."""
    return ["", *(spoken(tokenizer.piece(token)) for token in range(1, tokenizer.vocab_size))]


def build_search(config: SearchConfig, head: str, fusion: Fusion | None = None) -> Search:
    """Return the search of a configuration, for the frames of this kind of head."""
    return search.build_search(config.model_dump(), fusion, head == "transducer")
