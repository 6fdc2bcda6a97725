"""Text: tokenizers and normalisation."""

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
