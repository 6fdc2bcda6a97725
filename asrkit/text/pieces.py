"""Sub-words of imported models, whose labels have a list of their own."""

import base64
import binascii
import json
import re

from asrkit.text.tokenizer import SentencePieceTokenizer, SymbolTokenizer, TextError

IDEOGRAPH = re.compile(r"([\u4e00-\u9fff])")  # a label by itself, beside sub-words of other scripts


class PieceTokenizer:
    """Sub-words by sentencepiece, whose ids are places in a list and not those of sentencepiece.

    Args:
        model: the serialised sentencepiece model, which splits text.
        pieces: the labels from 1 on; "▁" stands for a space.

    Raises:
        TextError: if either cannot be used.
    """

    def __init__(self, model: bytes, pieces: list[str]) -> None:
        self._splitter, self._labels = SentencePieceTokenizer(model), SymbolTokenizer(pieces)
        self.vocab_size = self._labels.vocab_size

    def encode(self, text: str) -> list[int]:
        parts: list[str] = []
        for part in filter(str.strip, IDEOGRAPH.split(text)):
            parts += [part] if IDEOGRAPH.fullmatch(part) else self._splitter.split(part)
        return self._labels.ids(parts, text)

    def piece(self, token: int) -> str:
        return self._labels.piece(token).replace("▁", " ")

    def to_bytes(self) -> bytes:
        model = base64.b64encode(self._splitter.to_bytes()).decode()
        stored = {"pieces": self._labels.symbols, "sentencepiece": model}
        return json.dumps(stored, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "PieceTokenizer":
        try:
            values = json.loads(data)
            pieces, model = values["pieces"], base64.b64decode(values["sentencepiece"])
        except (ValueError, KeyError, TypeError, binascii.Error, RecursionError):
            raise TextError("not the labels and the sentencepiece model of a tokenizer") from None
        if not isinstance(pieces, list) or not all(isinstance(each, str) for each in pieces):
            raise TextError("labels are a list of strings")
        return cls(model, pieces)
