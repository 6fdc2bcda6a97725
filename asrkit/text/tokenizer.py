"""Text to token ids and back. Id 0 is CTC's blank in every tokenizer."""

import io
import json
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

from asrkit.errors import UserError, shown

UNSEEN = {"Cc", "Cs", "Zl", "Zp"}  # categories of Unicode
TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}  # its bidirectional types


class TextError(UserError):
    """Text that a tokenizer cannot encode, or a tokenizer that cannot be made."""


def unwritable(symbols: Sequence[str], text: str) -> TextError:
    """The error for symbols of a text that a vocabulary does not have."""
    named = " ".join(map(shown, symbols[:10])) + (" …" if len(symbols) > 10 else "")
    return TextError(f"not in the vocabulary: {named} in {shown(text)}")


class Tokenizer(Protocol):
    vocab_size: int  # with the blank

    def encode(self, text: str) -> list[int]:
        """Ids of normalised text. Raises TextError for a symbol that is not in the vocabulary."""

    def piece(self, token: int) -> str:
        """What one token adds to the text; a word starts where a space does."""

    def to_bytes(self) -> bytes:
        """The tokenizer for a model file; `from_bytes` of its class reads it."""


def decode(tokenizer: Tokenizer, tokens: Iterable[int]) -> str:
    """Text of token ids, with single spaces between words."""
    return " ".join("".join(tokenizer.piece(token) for token in tokens).split())


def normalize(
    text: str,
    case: Literal["keep", "lower", "upper"] = "keep",
    unicode_form: Literal["NFC", "NFKC", "none"] = "NFC",
) -> str:
    """One spelling for one text: its case, its Unicode form, single spaces."""
    if unicode_form != "none":
        text = unicodedata.normalize(unicode_form, text)
    if case != "keep":
        text = text.lower() if case == "lower" else text.upper()
    return " ".join(text.split())


def require_visible(symbols: Iterable[str]) -> None:
    """Refuse symbols that no text of speech has, and that act on the terminal they are printed on.

    Raises:
        TextError: for a control character, an end of a line, half of a surrogate pair, or a mark
            that turns the direction of writing.
    """
    for symbol in symbols:
        for each in symbol:
            if unicodedata.category(each) in UNSEEN or unicodedata.bidirectional(each) in TURNING:
                raise TextError(
                    f"symbol {shown(symbol)} holds the control character {shown(each)}: "
                    "take it out of the texts"
                )


class SymbolTokenizer:
    """A fixed list of symbols; `split` says what a symbol is.

    Args:
        symbols: distinct, in the order of their ids from 1 on.
    """

    def __init__(self, symbols: list[str]) -> None:
        self.symbols = symbols
        self.vocab_size = 1 + len(symbols)
        self._ids = {symbol: i for i, symbol in enumerate(symbols, start=1)}
        if len(self._ids) != len(symbols) or "" in self._ids:
            raise TextError("symbols must be distinct and not empty")
        require_visible(symbols)

    @staticmethod
    def split(text: str) -> list[str]:
        raise NotImplementedError

    @classmethod
    def train(cls, texts: Iterable[str]) -> "SymbolTokenizer":
        """All symbols of the texts, sorted."""
        return cls(sorted({symbol for text in texts for symbol in cls.split(text)}))

    def encode(self, text: str) -> list[int]:
        symbols = self.split(text)
        unknown = sorted({symbol for symbol in symbols if symbol not in self._ids})
        if unknown:
            raise unwritable(unknown, text)
        return [self._ids[symbol] for symbol in symbols]

    def piece(self, token: int) -> str:
        return self.symbols[token - 1]

    def to_bytes(self) -> bytes:
        return json.dumps(self.symbols, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "SymbolTokenizer":
        symbols = json.loads(data)
        if not isinstance(symbols, list) or not all(isinstance(s, str) for s in symbols):
            raise TextError("a symbol table is a JSON list of strings")
        return cls(symbols)


class CharTokenizer(SymbolTokenizer):
    """Unicode characters, the space among them."""

    @staticmethod
    def split(text: str) -> list[str]:
        return list(text)


class WordTokenizer(SymbolTokenizer):
    """Whole words, for closed vocabularies."""

    @staticmethod
    def split(text: str) -> list[str]:
        return text.split()

    def piece(self, token: int) -> str:
        return " " + self.symbols[token - 1]


class SentencePieceTokenizer:
    """Sub-words by sentencepiece (Kudo and Richardson 2018), unigram or BPE.

    Args:
        model: the serialised sentencepiece model.
    """

    def __init__(self, model: bytes) -> None:
        import sentencepiece

        self._model = model
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise TextError(f"not a sentencepiece model: {error}") from None
        # sentencepiece has <unk> at 0, which is where the blank goes.
        self.vocab_size = self._processor.get_piece_size()
        try:
            self._pieces = [self._processor.id_to_piece(i) for i in range(self.vocab_size)]
        except UnicodeDecodeError as error:
            raise TextError(f"a piece of the sentencepiece model is no text: {error}") from None
        require_visible(self._pieces)

    @classmethod
    def train(
        cls, texts: Iterable[str], vocab_size: int, algorithm: str = "unigram"
    ) -> "SentencePieceTokenizer":
        """A model of at most `vocab_size` pieces; `algorithm` is "unigram" or "bpe"."""
        import sentencepiece

        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(texts), model_writer=model, vocab_size=vocab_size,
                model_type=algorithm, character_coverage=1.0, unk_id=0, bos_id=-1, eos_id=-1,
                normalization_rule_name="identity", hard_vocab_limit=False, minloglevel=2,
            )  # fmt: skip
        except RuntimeError as error:
            raise TextError(f"sentencepiece, vocab_size {vocab_size}: {error}") from None
        return cls(model.getvalue())

    def encode(self, text: str) -> list[int]:
        try:
            tokens = self._processor.encode(text)
        except RuntimeError:  # half a character, which is no UTF-8
            raise TextError(f"cannot be encoded: {shown(text)}") from None
        if 0 in tokens:
            known = set("".join(map(self.piece, range(1, self.vocab_size))))
            unknown = sorted(set(text) - known - {" "})
            raise unwritable(unknown, text)
        return tokens

    def piece(self, token: int) -> str:
        return self._pieces[token].replace("▁", " ")

    def to_bytes(self) -> bytes:
        return self._model

    @classmethod
    def from_bytes(cls, data: bytes) -> "SentencePieceTokenizer":
        return cls(data)
