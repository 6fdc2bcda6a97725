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
from asrkit.text.wer import ErrorRate, cer, wer

__all__ = [
    "CharTokenizer",
    "ErrorRate",
    "SentencePieceTokenizer",
    "TextError",
    "Tokenizer",
    "WordTokenizer",
    "cer",
    "decode",
    "normalize",
    "wer",
]
