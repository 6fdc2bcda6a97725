"""Tokenizers: there and back, in several scripts; what they refuse; the label for ends of turns."""

import json
import sys
import unicodedata
from collections.abc import Callable
from typing import Any, Literal

import pytest

from asrkit.build import read_tokenizer, train_tokenizer
from asrkit.config.training import TextConfig
from asrkit.text import (
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
    normalize,
)

pytestmark = pytest.mark.usefixtures("collected")  # texts are nested deeply
TEXTS = [
    "seven three oh",
    "P I T T S B U R G H",
    "Über die Straße läuft ein großer Bär.",
    "我们 在 北京",
    "今天天气很好",
    "¿Qué? “Thank you,” said Bob… It's 5 % — no!",
    "",
]
SPLITTER = SentencePieceTokenizer.train(["yes no", "no yes nose", "oh seven"] * 4, 24)
VOCABULARY = SPLITTER.vocab_size
# In an order that is not sentencepiece's, with labels that no text has
LABELS = [
    "<unk>",
    *sorted(SPLITTER.piece(i).replace(" ", "▁") for i in range(1, VOCABULARY)),
    "京",
    "北",
]


def pieces(labels: list[str]) -> PieceTokenizer:
    return PieceTokenizer(SPLITTER.to_bytes(), labels)


TOKENIZERS: dict[str, Callable[[list[str]], Any]] = {
    "characters": CharTokenizer.train,
    "words": WordTokenizer.train,
    "unigram": lambda texts: SentencePieceTokenizer.train(texts * 5, 60, "unigram"),
    "bpe": lambda texts: SentencePieceTokenizer.train(texts * 5, 60, "bpe"),
    "pieces": lambda texts: pieces(LABELS).extended(texts),
}


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_round_trip_and_unknown_symbols(kind: str) -> None:
    """A message names the unknown symbol and a part of a long text."""
    tokenizer = TOKENIZERS[kind](TEXTS)
    again = read_tokenizer(TextConfig(tokenizer=kind), tokenizer.to_bytes())
    for text in TEXTS:
        if kind == "pieces":  # it removes spaces between ideographs
            text = text.replace("们 在 北", "们在北")
        tokens = tokenizer.encode(text)
        assert all(0 < token < tokenizer.vocab_size for token in tokens)  # 0 is the blank
        assert decode(tokenizer, tokens) == text
        assert again.encode(text) == tokens
    assert again.vocab_size == tokenizer.vocab_size
    with pytest.raises(TextError, match=r"not in the vocabulary: .*Ω"):
        tokenizer.encode("seven Ω")
    with pytest.raises(TextError, match="not in the vocabulary: ") as error:
        tokenizer.encode(" ".join(chr(0x1400 + i) * 1000 for i in range(200)))
    assert len(str(error.value)) < 1500


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_symbols_are_appended(kind: str) -> None:
    tokenizer = TOKENIZERS[kind](TEXTS)
    if kind in ("unigram", "bpe"):
        assert tokenizer.extended(TEXTS) is tokenizer
        with pytest.raises(TextError, match=r"not in the vocabulary: 'Ω' in 'seven Ω'"):
            tokenizer.extended(["seven", "seven Ω"])
        return
    longer = tokenizer.extended(["seven Ω", "Ωμ three"])
    assert longer.vocab_size == tokenizer.vocab_size + 2
    assert longer.encode("seven three") == tokenizer.encode("seven three")
    assert decode(longer, longer.encode("seven Ω")) == "seven Ω"
    assert tokenizer.extended(TEXTS).to_bytes() == tokenizer.to_bytes()


def test_labels_of_an_imported_model_are_ids_of_its_list() -> None:
    """The pieces are sentencepiece's; an ideograph is a label of its own."""
    tokenizer = pieces(LABELS)
    tokens = tokenizer.encode("yes no oh")
    assert [LABELS[token - 1] for token in tokens] == SPLITTER.split("yes no oh")
    assert tokens != SPLITTER.encode("yes no oh")  # the control: another order
    assert [tokenizer.piece(token) for token in tokenizer.encode("北京 oh")[:2]] == ["北", "京"]
    with pytest.raises(TextError, match=r"not in the vocabulary: '天' in '天京'"):
        tokenizer.encode("天京")


def test_pieces_that_are_no_labels_become_the_longest_labels() -> None:
    splitter = SentencePieceTokenizer.train(["yes no", "no yes"] * 3, 12)
    assert len(splitter.split("yes no")) < len("▁yes▁no")
    letters = PieceTokenizer(splitter.to_bytes(), ["▁", "▁y", "e", "es", "s", "n", "o", "y"])
    assert [letters.piece(token) for token in letters.encode("yes no")] == [
        " y", "es", " ", "n", "o",
    ]  # fmt: skip


def test_normalize() -> None:
    assert normalize("  Straße\tEins ", "upper") == "STRASSE EINS"
    assert normalize("U\u0308ber", "lower") == "über"
    assert normalize("e\u0301") == "é"


STORED = json.loads(pieces(["a"]).to_bytes())


def stored(**changes: object) -> bytes:
    return json.dumps(STORED | changes).encode()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CharTokenizer.from_bytes(b"[" * 10**5), "must be a JSON list of strings"),
        (lambda: CharTokenizer(["a", "a"]), "distinct"),
        (lambda: SentencePieceTokenizer.from_bytes(b"x"), "not a sentencepiece model"),
        (lambda: SentencePieceTokenizer.train(TEXTS, 3), "vocab_size 3"),
        (lambda: PieceTokenizer.from_bytes(b"[]"), "not the labels and the sentencepiece model"),
        (lambda: PieceTokenizer.from_bytes(stored(sentencepiece="eA")), "not the labels and"),
        (lambda: PieceTokenizer.from_bytes(stored(pieces=[3])), "not the labels and"),
        (lambda: PieceTokenizer.from_bytes(stored(pieces=["a\x1b"])), "control character"),
        (lambda: train_tokenizer(TextConfig(tokenizer="pieces"), TEXTS), "train unigram or bpe"),
        (lambda: SPLITTER.with_label(END_OF_TURN), "cannot be extended by <eou>: train new ones"),
        (lambda: SPLITTER.encode("sev\udc00"), r"cannot be encoded: 'sev\\udc00'"),
        (lambda: SentencePieceTokenizer(SPLITTER.to_bytes().replace(b"seven", b"s\xff\xff\xffn")),
         "a piece of the sentencepiece model is not text"),
    ],
)  # fmt: skip
def test_bad_tokenizers(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TextError, match=message):
        make()


@pytest.mark.parametrize("case", ["lower", "upper"])
def test_every_letter_is_normal_in_another_case(case: Literal["lower", "upper"]) -> None:
    """Capitals of some Greek letters are decomposed: tokens that no other text has."""
    for code in range(sys.maxunicode + 1):
        once = normalize(chr(code), case)
        assert unicodedata.is_normalized("NFC", once), ascii(once)
    assert normalize("ταΐζω", "upper") == "ΤΑ\u03aa\u0301ΖΩ"


@pytest.mark.parametrize(
    "tokenizer",
    [CharTokenizer(list("enosy ")), WordTokenizer(["no", "yes"]), pieces([*LABELS, "<EOB>"])],
)
def test_an_end_of_turn_is_appended_and_is_not_text(tokenizer: Tokenizer) -> None:
    assert end_of_turn(tokenizer) is None
    longer = tokenizer.with_label(END_OF_TURN)
    label = end_of_turn(longer)
    assert label == tokenizer.vocab_size == longer.vocab_size - 1
    tokens = longer.encode("no yes")
    assert tokens == tokenizer.encode("no yes")
    assert decode(longer, [*tokens, label]) == decode(longer, [label, *tokens]) == "no yes"
    assert END_OF_TURN in events(longer)
    again = type(longer).from_bytes(longer.to_bytes())  # type: ignore[attr-defined]
    assert end_of_turn(again) == label
    assert end_of_turn(pieces(["▁no", "<EOU>", "<EOB>"])) == 2  # that of imported models


@pytest.mark.parametrize("kind", ["characters", "words", "unigram", "bpe"])
def test_a_training_adds_an_end_of_turn(kind: str) -> None:
    texts = ["yes no", "no yes nose"] * 4
    config = TextConfig(tokenizer=kind, vocab_size=14, end_of_turn=True)
    tokenizer = train_tokenizer(config, texts)
    label = end_of_turn(tokenizer)
    assert label is not None
    assert label not in tokenizer.encode("no yes")
    assert decode(tokenizer, [*tokenizer.encode("no yes"), label]) == "no yes"
