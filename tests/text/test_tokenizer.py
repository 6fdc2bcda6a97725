"""Tokenizers: there and back, in several scripts; what they refuse."""

import sys
import unicodedata
from typing import Literal

import pytest

from asrkit.text import (
    CharTokenizer,
    PieceTokenizer,
    SentencePieceTokenizer,
    TextError,
    Tokenizer,
    WordTokenizer,
    decode,
    normalize,
)

TEXTS = [
    "seven three oh",
    "P I T T S B U R G H",
    "Über die Straße läuft ein großer Bär.",
    "我们 在 北京",
    "今天天气很好",
    "¿Qué? “Thank you,” said Bob… It's 5 % — no!",
    "",
]


def tokenizers() -> list[Tokenizer]:
    return [
        CharTokenizer.train(TEXTS),
        WordTokenizer.train(TEXTS),
        SentencePieceTokenizer.train(TEXTS * 5, 60, "unigram"),
        SentencePieceTokenizer.train(TEXTS * 5, 60, "bpe"),
    ]


@pytest.mark.parametrize("index", range(4))
def test_round_trip(index: int) -> None:
    tokenizer = tokenizers()[index]
    again = type(tokenizer).from_bytes(tokenizer.to_bytes())  # type: ignore[attr-defined]
    for text in TEXTS:
        tokens = tokenizer.encode(text)
        assert all(0 < token < tokenizer.vocab_size for token in tokens)  # 0 is the blank
        assert decode(tokenizer, tokens) == text
        assert again.encode(text) == tokens
    assert again.vocab_size == tokenizer.vocab_size


@pytest.mark.parametrize("index", range(4))
def test_unknown_symbols_are_named(index: int) -> None:
    with pytest.raises(TextError, match=r"not in the vocabulary: .*Ω"):
        tokenizers()[index].encode("seven Ω")


@pytest.mark.parametrize("index", range(2))
def test_symbols_are_appended(index: int) -> None:
    tokenizer = tokenizers()[index]
    longer = tokenizer.extended(["seven Ω", "Ωμ three"])
    assert longer.vocab_size == tokenizer.vocab_size + 2
    assert longer.encode("seven three") == tokenizer.encode("seven three")
    assert decode(longer, longer.encode("seven Ω")) == "seven Ω"
    assert tokenizer.extended(TEXTS).to_bytes() == tokenizer.to_bytes()


def test_sub_words_are_not_appended() -> None:
    for tokenizer in tokenizers()[2:]:
        assert tokenizer.extended(TEXTS) is tokenizer
        with pytest.raises(TextError, match=r"cannot write 1 of 2 texts: 'Ω' 1×$"):
            tokenizer.extended(["seven", "seven Ω"])


def test_sub_words_of_another_list_are_the_longest_labels() -> None:
    """Sentencepiece's pieces where they are labels; elsewhere the longest labels."""
    splitter = SentencePieceTokenizer.train(["yes no", "no yes"] * 3, 12)
    whole = splitter.split("yes no")
    assert len(whole) < len("▁yes▁no")
    known = PieceTokenizer(splitter.to_bytes(), whole)
    assert known.encode("yes no") == [*range(1, len(whole) + 1)]
    letters = PieceTokenizer(splitter.to_bytes(), ["▁", "▁y", "e", "es", "s", "n", "o", "y"])
    pieces = [letters.piece(token) for token in letters.encode("yes no")]
    assert pieces == [" y", "es", " ", "n", "o"]
    with pytest.raises(TextError, match=r"not in the vocabulary: 'ü'"):
        known.encode("yes ü")
    longer = known.extended(["yes ü", "no"])
    assert decode(longer, longer.encode("ü yes")) == "ü yes"
    assert [longer.piece(i) for i in range(1, known.vocab_size)] == [
        known.piece(i) for i in range(1, known.vocab_size)
    ]


def test_normalize() -> None:
    assert normalize("  Straße\tEins ", "upper") == "STRASSE EINS"
    assert normalize("U\u0308ber", "lower") == "über"
    assert normalize("\uff21\uff22", "keep", "NFKC") == "AB"
    assert normalize("e\u0301", "keep", "none") == "e\u0301"


def test_bad_tokenizers() -> None:
    with pytest.raises(TextError, match="JSON list"):
        CharTokenizer.from_bytes(b'{"a": 1}')
    with pytest.raises(TextError, match="distinct"):
        CharTokenizer(["a", "a"])
    with pytest.raises(TextError, match="not a sentencepiece model"):
        SentencePieceTokenizer.from_bytes(b"nonsense")
    with pytest.raises(TextError, match="vocab_size 3"):
        SentencePieceTokenizer.train(TEXTS, 3)


def test_what_sentencepiece_cannot_hold() -> None:
    """Half a character, and a model whose pieces are no text, as a damaged file has them."""
    tokenizer = SentencePieceTokenizer.train(TEXTS * 5, 60)
    with pytest.raises(TextError, match=r"cannot be encoded: 'sev\\udc00'"):
        tokenizer.encode("sev\udc00")
    damaged = tokenizer.to_bytes().replace("Ü".encode(), b"\xff\xff")
    with pytest.raises(TextError, match="a piece of the sentencepiece model is not text"):
        SentencePieceTokenizer.from_bytes(damaged)


@pytest.mark.parametrize("index", range(4))
def test_a_message_shows_a_part_of_a_long_text(index: int) -> None:
    text = " ".join(chr(0x1400 + i) * 1000 for i in range(200))
    with pytest.raises(TextError, match="not in the vocabulary: ") as error:
        tokenizers()[index].encode(text)
    assert len(str(error.value)) < 1500


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
@pytest.mark.parametrize("case", ["lower", "upper"])
def test_every_letter_is_normal_in_another_case(
    case: Literal["lower", "upper"], form: Literal["NFC", "NFKC"]
) -> None:
    """Capitals of some Greek letters are decomposed: tokens that no other text has."""
    for code in range(sys.maxunicode + 1):
        once = normalize(chr(code), case, form)
        assert unicodedata.is_normalized(form, once), ascii(once)
    assert normalize("ταΐζω", "upper") == "ΤΑ\u03aa\u0301ΖΩ"
