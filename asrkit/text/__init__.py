"""Text: tokenizers and normalisation."""

from asrkit.text.tokenizer import (
    CharTokenizer,
    PieceTokenizer,
    SentencePieceTokenizer,
    TextError,
    Tokenizer,
    WordTokenizer,
    decode,
    events,
    is_visible,
    normalize,
    spoken,
)

__all__ = [
    "CharTokenizer",
    "PieceTokenizer",
    "SentencePieceTokenizer",
    "TextError",
    "Tokenizer",
    "WordTokenizer",
    "decode",
    "events",
    "is_visible",
    "normalize",
    "spoken",
]
