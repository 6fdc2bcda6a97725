"""The label for ends of turns in each kind of tokenizer."""

import pytest

from asrkit.build import train_tokenizer
from asrkit.config import TextConfig
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
)

TEXTS = ["yes no", "no yes nose"] * 4
PIECES = SentencePieceTokenizer.train(TEXTS, 12)


@pytest.mark.parametrize(
    "tokenizer",
    [CharTokenizer(list("enosy ")), WordTokenizer(["no", "yes"]),
     PieceTokenizer(PIECES.to_bytes(), ["▁no", *"▁yesno", "<EOB>"])],
)  # fmt: skip
def test_a_label_is_appended_and_is_not_text(tokenizer: Tokenizer) -> None:
    assert end_of_turn(tokenizer) is None
    longer = tokenizer.with_label(END_OF_TURN)
    label = end_of_turn(longer)
    assert label == tokenizer.vocab_size == longer.vocab_size - 1
    tokens = longer.encode("no yes")
    assert tokens == tokenizer.encode("no yes")
    assert decode(longer, [*tokens, label]) == "no yes"
    assert decode(longer, [label, *tokens]) == "no yes"
    assert END_OF_TURN in events(longer)
    again = type(longer).from_bytes(longer.to_bytes())  # type: ignore[attr-defined]
    assert end_of_turn(again) == label


def test_the_label_of_imported_models() -> None:
    assert end_of_turn(PieceTokenizer(PIECES.to_bytes(), ["▁no", "<EOU>", "<EOB>"])) == 2


@pytest.mark.parametrize("kind", ["characters", "words", "unigram", "bpe"])
def test_a_training_adds_it(kind: str) -> None:
    config = TextConfig(tokenizer=kind, vocab_size=14, end_of_turn=True)
    tokenizer = train_tokenizer(config, TEXTS)
    label = end_of_turn(tokenizer)
    assert label is not None
    assert label not in tokenizer.encode("no yes")
    assert decode(tokenizer, [*tokenizer.encode("no yes"), label]) == "no yes"
    without = train_tokenizer(config.model_copy(update={"end_of_turn": False}), TEXTS)
    assert end_of_turn(without) is None


def test_sub_words_that_cannot_be_extended() -> None:
    with pytest.raises(TextError, match="cannot be extended by <eou>: train new ones"):
        PIECES.with_label(END_OF_TURN)
