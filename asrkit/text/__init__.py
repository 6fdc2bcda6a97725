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
from asrkit.text.wer import ErrorRate, Interval, bootstrap, cer, wer

__all__ = [
    "CharTokenizer",
    "ErrorRate",
    "Interval",
    "SentencePieceTokenizer",
    "TextError",
    "Tokenizer",
    "WordTokenizer",
    "bootstrap",
    "cer",
    "decode",
    "normalize",
    "wer",
]
