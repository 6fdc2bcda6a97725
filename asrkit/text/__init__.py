"""Text: tokenizers and normalisation."""

from asrkit.text.tokenizer import (
    END_OF_TURN,
    CharTokenizer,
    PieceTokenizer,
    SentencePieceTokenizer,
    TextError,
    Tokenizer,
    WordTokenizer,
    decode,
    end_of_turn,
    events,
    is_visible,
    normalize,
    spoken,
)
