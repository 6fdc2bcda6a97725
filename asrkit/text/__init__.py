"""Text: tokenizers, normalisation, error rates."""

from asrkit.text.tokenizer import (
    CharTokenizer,
    SentencePieceTokenizer,
    TextError,
    Tokenizer,
    WordTokenizer,
    decode,
    normalize,
)

__all__ = [
    "CharTokenizer",
    "SentencePieceTokenizer",
    "TextError",
    "Tokenizer",
    "WordTokenizer",
    "decode",
    "normalize",
]
