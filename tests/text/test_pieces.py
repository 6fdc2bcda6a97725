"""Labels of imported models: ids of a list, splits of sentencepiece."""

import json

import pytest

from asrkit.build import read_tokenizer, train_tokenizer
from asrkit.config import TextConfig
from asrkit.text import PieceTokenizer, SentencePieceTokenizer, TextError, decode

TEXTS = ["seven three oh", "three oh eleven", "oh seven"]
PIECES = TextConfig(tokenizer="pieces")


@pytest.fixture
def splitter() -> SentencePieceTokenizer:
    return SentencePieceTokenizer.train(TEXTS * 5, 24)


def labels(splitter: SentencePieceTokenizer) -> list[str]:
    """In an order that is not sentencepiece's, with labels that no text has."""
    pieces = [splitter.piece(i).replace(" ", "▁") for i in range(1, splitter.vocab_size)]
    return ["<unk>", *sorted(pieces), "京", "北", "<sos/eos>"]


def test_there_and_back(splitter: SentencePieceTokenizer) -> None:
    pieces = labels(splitter)
    tokenizer = PieceTokenizer(splitter.to_bytes(), pieces)
    again = read_tokenizer(PIECES, tokenizer.to_bytes())
    for text in [*TEXTS, ""]:
        tokens = tokenizer.encode(text)
        assert decode(tokenizer, tokens) == text
        assert again.encode(text) == tokens
        assert [pieces[t - 1] for t in tokens] == splitter.split(text)
        assert tokens != splitter.encode(text) or not text  # control: the ids are the list's
    assert tokenizer.vocab_size == again.vocab_size == len(pieces) + 1


def test_an_ideograph_is_a_label(splitter: SentencePieceTokenizer) -> None:
    tokenizer = PieceTokenizer(splitter.to_bytes(), labels(splitter))
    tokens = tokenizer.encode("北京 oh")
    assert [tokenizer.piece(token) for token in tokens[:2]] == ["北", "京"]
    assert decode(tokenizer, tokens) == "北京 oh"
    with pytest.raises(TextError, match=r"not in the vocabulary: '天' in '天京'"):
        tokenizer.encode("天京")
    with pytest.raises(TextError, match="not in the vocabulary"):
        tokenizer.encode("Ω")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"[]", "not the labels and the sentencepiece model"),
        (b'{"pieces": ["a"], "sentencepiece": 3}', "not the labels and the sentencepiece model"),
        (b'{"pieces": ["a"], "sentencepiece": "eA"}', "not the labels and the sentencepiece model"),
        (b'{"pieces": ["a"], "sentencepiece": "eA=="}', "not a sentencepiece model"),
        (b'{"pieces": [3], "sentencepiece": "eA=="}', "labels must be a list of strings"),
        (b"\xff", "not the labels and the sentencepiece model"),
    ],
)
def test_bad_bytes(data: bytes, told: str) -> None:
    with pytest.raises(TextError, match=told):
        PieceTokenizer.from_bytes(data)


def test_labels_are_distinct_and_visible(splitter: SentencePieceTokenizer) -> None:
    stored = json.loads(PieceTokenizer(splitter.to_bytes(), ["a"]).to_bytes())
    for pieces, told in ((["a", "a"], "distinct"), (["a\x1b"], "control character")):
        with pytest.raises(TextError, match=told):
            PieceTokenizer.from_bytes(json.dumps(stored | {"pieces": pieces}).encode())


def test_none_is_trained() -> None:
    with pytest.raises(TextError, match="pieces is for imported models: train unigram or bpe"):
        train_tokenizer(PIECES, TEXTS)
