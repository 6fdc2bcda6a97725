"""Text: tokenizers, normalisation, error rates."""

from asrkit.text.calibration import calibration_error
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
    "calibration_error",
    "cer",
    "decode",
    "normalize",
    "wer",
]
