"""Text to token ids and back. Id 0 is CTC's blank in every tokenizer."""

import base64
import io
import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar

from pydantic import Base64Bytes, BaseModel, TypeAdapter, ValidationError

from asrkit.errors import UserError, acts, shown
from asrkit.text.graphemes import in_one_line

Stored = TypeVar("Stored")

IDEOGRAPH = re.compile(r"([\u4e00-\u9fff])")  # labels of their own, besides sub-words
END_OF_TURN = "<eou>"  # label of `text.end_of_turn`
ENDS = (END_OF_TURN, "<EOU>")  # labels that mark the end of a turn, the latter in NVIDIA's models
EVENTS = (*ENDS, "<EOB>")  # labels that are not text, besides those of LANGUAGE
LANGUAGE = re.compile("<[a-z]{2,3}-[A-Z]{2}>")  # the language of a sentence, in NVIDIA's models


class TextError(UserError):
    """Text that a tokenizer cannot encode, or a tokenizer that cannot be made."""


def not_in_vocabulary(symbols: Sequence[str], text: str) -> TextError:
    """Return the error for symbols of a text that a tokenizer does not have."""
    named = " ".join(map(shown, symbols[:10])) + (" …" if len(symbols) > 10 else "")
    return TextError(f"not in the vocabulary: {named} in {shown(text)}")


class Tokenizer(Protocol):
    """A tokenizer: text to token ids and back."""

    vocab_size: int  # includes the blank

    def encode(self, text: str) -> list[int]:
        """Return the ids of normalised text. Raise TextError for a symbol not in the vocabulary."""

    def piece(self, token: int) -> str:
        """Return the text of one token, with a space where a word begins."""

    def extended(self, texts: Iterable[str]) -> "Tokenizer":
        """Return a tokenizer with more ids, for what it lacks of the texts, or raise TextError."""

    def with_label(self, label: str) -> "Tokenizer":
        """Return a tokenizer with one label more, not for `encode`, or raise TextError."""

    def to_bytes(self) -> bytes:
        """Return the tokenizer as bytes for a model file; `from_bytes` of its class reads them."""


def decode(tokenizer: Tokenizer, tokens: Iterable[int]) -> str:
    """Return the text of token ids, with single spaces between words."""
    return " ".join("".join(spoken(tokenizer.piece(token)) for token in tokens).split())


def is_event(piece: str) -> bool:
    """Return whether a token is a label that is never part of a text."""
    label = piece.strip()
    return label in EVENTS or LANGUAGE.fullmatch(label) is not None


def spoken(piece: str) -> str:
    """Return a token's part of a text: nothing for an event."""
    return "" if is_event(piece) else piece


def end_of_turn(tokenizer: Tokenizer) -> int | None:
    """Return the label that marks the end of a turn; None for a tokenizer without one."""
    labels = range(1, tokenizer.vocab_size)
    return next((each for each in labels if tokenizer.piece(each).strip() in ENDS), None)


def events(tokenizer: Tokenizer) -> list[str]:
    """Return the labels of a tokenizer that are never part of a text."""
    pieces = (tokenizer.piece(token).strip() for token in range(1, tokenizer.vocab_size))
    return [piece for piece in pieces if is_event(piece)]


def normalize(text: str, case: Literal["keep", "lower", "upper"] = "keep") -> str:
    """Return the text in one case and in Unicode's form NFC, in one line with single spaces."""
    text = unicodedata.normalize("NFC", text)
    if case != "keep":
        # The capital of a letter may be several letters, decomposed.
        text = unicodedata.normalize("NFC", text.lower() if case == "lower" else text.upper())
    return in_one_line(text)


def is_visible(text: str) -> bool:
    """Return whether a tokenizer may have these characters, see `require_visible`."""
    return text.isprintable() or not any(map(acts, text))


def require_visible(symbols: Iterable[str]) -> None:
    """Reject characters that no transcript has and that would control a terminal."""
    if odd := next((symbol for symbol in symbols if not is_visible(symbol)), None):
        raise TextError(f"symbol {shown(odd)} has a control character: remove it from the texts")


def read_json(kind: type[Stored], data: bytes, message: str) -> Stored:
    """Read a value of this type from JSON; `message` says what other bytes are not."""
    try:
        return TypeAdapter(kind).validate_json(data)
    except ValidationError:
        raise TextError(message) from None


class SymbolTokenizer:
    """A tokenizer with a list of distinct symbols, by their ids from 1 on; kinds define `split`."""

    def __init__(self, symbols: list[str]) -> None:
        self.symbols = symbols
        self.vocab_size = 1 + len(symbols)
        self._ids = {symbol: i for i, symbol in enumerate(symbols, start=1)}
        if len(self._ids) != len(symbols) or "" in self._ids:
            raise TextError("symbols must be distinct and not empty")
        require_visible(symbols)

    def split(self, text: str) -> list[str]:
        """Return the symbols of a text."""
        raise NotImplementedError

    @classmethod
    def train(cls, texts: Iterable[str]) -> "SymbolTokenizer":
        """Return the tokenizer of all symbols in the texts, sorted."""
        return cls([]).extended(texts)

    def encode(self, text: str) -> list[int]:
        symbols = self.split(text)
        unknown = sorted({symbol for symbol in symbols if symbol not in self._ids})
        if unknown:
            raise not_in_vocabulary(unknown, text)
        return [self._ids[symbol] for symbol in symbols]

    def extended(self, texts: Iterable[str]) -> "SymbolTokenizer":
        new = {symbol for text in texts for symbol in self.split(text)} - self._ids.keys()
        return self.plus(sorted(new))

    def with_label(self, label: str) -> "SymbolTokenizer":
        return self.plus([label])

    def plus(self, new: list[str]) -> "SymbolTokenizer":
        return type(self)([*self.symbols, *new])

    def piece(self, token: int) -> str:
        return self.symbols[token - 1]

    def to_bytes(self) -> bytes:
        return json.dumps(self.symbols, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "SymbolTokenizer":
        return cls(read_json(list[str], data, "a symbol table must be a JSON list of strings"))


class CharTokenizer(SymbolTokenizer):
    """A tokenizer with a token for each Unicode character, including the space."""

    def split(self, text: str) -> list[str]:
        return list(text)


class WordTokenizer(SymbolTokenizer):
    """A tokenizer with a token for each word, for closed vocabularies."""

    @property
    def words(self) -> list[str]:
        """The words without events."""
        return [each for each in self.symbols if spoken(each)]

    def split(self, text: str) -> list[str]:
        return text.split()

    def piece(self, token: int) -> str:
        return " " + self.symbols[token - 1]


class SentencePieceTokenizer:
    """Sub-words by sentencepiece (Kudo and Richardson 2018), unigram or BPE."""

    def __init__(self, model: bytes) -> None:
        import sentencepiece

        self._model = model
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise TextError(f"not a sentencepiece model: {error}") from None
        # Id 0 is the blank, but sentencepiece's <unk>, which is therefore never a token.
        self.vocab_size = self._processor.get_piece_size()
        try:
            self._pieces = [self._processor.id_to_piece(i) for i in range(self.vocab_size)]
        except UnicodeDecodeError as error:
            raise TextError(f"a piece of the sentencepiece model is not text: {error}") from None
        require_visible(self._pieces)
        self._letters = set("".join(self._pieces[1:]))

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int,
        algorithm: str = "unigram",
        labels: Sequence[str] = (),
    ) -> "SentencePieceTokenizer":
        """Return a tokenizer of at most `vocab_size` pieces, with these labels among them."""
        import sentencepiece

        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(texts), model_writer=model, vocab_size=vocab_size,
                model_type=algorithm, character_coverage=1.0, unk_id=0, bos_id=-1, eos_id=-1,
                normalization_rule_name="identity", hard_vocab_limit=False, minloglevel=2,
                user_defined_symbols=[*labels],
            )  # fmt: skip
        except RuntimeError as error:
            raise TextError(f"sentencepiece, vocab_size {vocab_size}: {error}") from None
        return cls(model.getvalue())

    def encode(self, text: str) -> list[int]:
        tokens: list[int] = self._encoded(text, int)
        if 0 in tokens:
            unknown = sorted(set(text) - self._letters - {" "})
            raise not_in_vocabulary(unknown, text)
        return tokens

    def split(self, text: str) -> list[str]:
        """Return the pieces of a text with "▁"; a text without pieces is one piece."""
        return self._encoded(text, str)

    def extended(self, texts: Iterable[str]) -> "SentencePieceTokenizer":
        """Return this tokenizer, which cannot be extended. Raise TextError if it lacks a letter."""
        for text in texts:
            self.encode(text)
        return self

    def with_label(self, label: str) -> "SentencePieceTokenizer":
        raise TextError(f"sub-words of sentencepiece cannot be extended by {label}: train new ones")

    def _encoded(self, text: str, kind: type) -> Any:
        try:
            return self._processor.encode(text, out_type=kind)
        except (RuntimeError, TypeError):  # a lone surrogate, which UTF-8 cannot encode
            raise TextError(f"cannot be encoded: {shown(text)}") from None

    def piece(self, token: int) -> str:
        return self._pieces[token].replace("▁", " ")

    def to_bytes(self) -> bytes:
        return self._model

    @classmethod
    def from_bytes(cls, data: bytes) -> "SentencePieceTokenizer":
        return cls(data)


class StoredPieces(BaseModel):
    """The contents of a `PieceTokenizer` in JSON."""

    pieces: list[str]
    sentencepiece: Base64Bytes


class PieceTokenizer(SymbolTokenizer):
    """A tokenizer with the sub-words of an imported model, which has its own list of labels.

    Sentencepiece splits the text; ids are indices of the list. A part that is not a label is split
    into the longest labels from left to right. In both, "▁" stands for a space.
    """

    def __init__(self, model: bytes, pieces: list[str]) -> None:
        super().__init__(pieces)
        self._splitter = SentencePieceTokenizer(model)

    def split(self, text: str) -> list[str]:
        """Return the labels of a text; each letter that no label has stands alone."""
        labels: list[str] = []
        for part in filter(str.strip, IDEOGRAPH.split(text)):
            ideograph = IDEOGRAPH.fullmatch(part)
            for piece in [part] if ideograph else self._splitter.split(part):
                labels += [piece] if piece in self._ids else self._longest.findall(piece)
        return labels

    @cached_property
    def _longest(self) -> re.Pattern[str]:
        """The longest label at a place, or one letter."""
        labels = map(re.escape, sorted(self.symbols, key=len, reverse=True))
        return re.compile("|".join([*labels, "."]), re.DOTALL)

    def plus(self, new: list[str]) -> "PieceTokenizer":
        return PieceTokenizer(self._splitter.to_bytes(), [*self.symbols, *new])

    def piece(self, token: int) -> str:
        return super().piece(token).replace("▁", " ")

    def to_bytes(self) -> bytes:
        model = base64.b64encode(self._splitter.to_bytes()).decode()
        stored = {"pieces": self.symbols, "sentencepiece": model}
        return json.dumps(stored, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "PieceTokenizer":
        message = "not the labels and the sentencepiece model of a tokenizer"
        stored = read_json(StoredPieces, data, message)
        return cls(stored.sentencepiece, stored.pieces)
