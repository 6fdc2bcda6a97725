"""Text: tokenizers and normalisation."""

from asrkit.text.tokenizer import (
    CharTokenizer,
    PieceTokenizer,
    SentencePieceTokenizer,
    TextError,
    Tokenizer,
    WordTokenizer,
    decode,
    is_visible,
    normalize,
)

__all__ = [
    "CharTokenizer",
    "PieceTokenizer",
    "SentencePieceTokenizer",
    "TextError",
    "Tokenizer",
    "WordTokenizer",
    "decode",
    "is_visible",
    "normalize",
]
