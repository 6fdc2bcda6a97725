"""The choice of a configuration by the hours of recordings and their texts."""

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from asrkit.build import build_normalizer
from asrkit.config.read_yaml import read_values
from asrkit.evaluation.written import is_mark
from asrkit.model_file import ModelFile
from asrkit.training.dev_texts import unwritable

Values = dict[str, dict[str, Any]]  # of a configuration, by section and key


class Row(NamedTuple):
    """A row of the table in docs/training.md, section "Choose a configuration"."""

    hours: float  # of recordings, at most
    base: str  # configuration of conf/
    vocab_size: int | None  # number of sub-words; None for characters
    settings: dict[str, Any]  # other differences from the base
    millions: float  # parameters
    speed: float  # seconds of audio a second of training
    machine: str  # where this speed was measured, or estimated from that of another size


AUTO = {"training.epochs": "auto", "training.average": "auto"}
WIDER = {"model.num_layers": 6, "model.dim": 144, "model.ffn_dim": 576, "training.epochs": 20}
ROWS = (
    Row(2, "conformer", None, {}, 1, 36, "one CPU core"),
    Row(4, "librispeech5", None, AUTO, 1, 61, "two CPU cores"),
    Row(8, "librispeech5", 128, AUTO, 1, 61, "two CPU cores"),
    Row(40, "librispeech5", 256, AUTO | WIDER, 3, 20, "two CPU cores"),
    Row(400, "librispeech100", 300, {}, 32, 4500, "an H200"),
    Row(math.inf, "librispeech", 500, {}, 78, 1800, "an H200"),
)
FEW_WORDS, OFTEN = 300, 10  # most words of a set of commands, least mean occurrence of each
UNWRITTEN = 0.02  # largest share of words that a ready model cannot write
WRITTEN = 0.02  # least share of words with capitals, and with marks, of written text
SCRIPT = 500  # different characters from which each is a syllable or a word
NOT_OURS = ("recipe", "licence", "languages")  # keys about the corpus of a shipped configuration


class Texts:
    """The words of a corpus."""

    def __init__(self, train: Iterable[str], dev: Iterable[str]) -> None:
        self.train, self.dev = (
            Counter(word for text in texts for word in text.split()) for texts in (train, dev)
        )

    def tokenizer(self, row: Row) -> str:
        """Return the kind of labels: words for a fixed set of frequent words with those of dev."""
        few = 0 < len(self.train) <= FEW_WORDS and self.train.total() >= OFTEN * len(self.train)
        if few and self.dev.keys() <= self.train.keys():
            return "words"
        many = len({letter for word in self.train for letter in word}) > SCRIPT
        return "characters" if many or row.vocab_size is None else "unigram"

    def is_written(self) -> bool:
        """Return whether many words have a capital and small letters, and many a mark behind."""
        capital = sum(
            n for word, n in self.train.items() if word not in (word.lower(), word.upper())
        )
        marked = sum(n for word, n in self.train.items() if is_mark(word[-1]))
        return min(capital, marked) >= WRITTEN * self.train.total()

    def fit(self, file: ModelFile) -> bool:
        """Return whether a model's labels can write nearly all words."""
        spell, words = build_normalizer(file.config.text), Counter[str]()
        for word, count in (self.train + self.dev).items():
            words[spell(word)] += count
        return unwritable(words, file.tokenizer).total() <= UNWRITTEN * words.total()


def planned(row: Row, texts: Texts, start: str | None, chosen: dict[str, Any]) -> Values:
    """Return the values of a configuration.

    Args:
        start: model to fine-tune, which has its own network and labels; None to begin anew.
        chosen: more settings, by dotted key: the manifests and the folder.
    """
    if start is None:
        tokenizer = texts.tokenizer(row)
        chosen = chosen | row.settings | {"text.tokenizer": tokenizer, "text.case": "keep"}
        chosen |= {"text.vocab_size": row.vocab_size} if tokenizer == "unigram" else {}
        chosen |= {"text.written": True} if texts.is_written() else {}
    else:
        chosen = chosen | {"training.start_from": start}
    values: Values = read_values(row.base if start is None else "finetune", [])
    for section, keys in (("data", NOT_OURS), ("text", ("vocab_size",))):
        for key in keys:
            values.get(section, {}).pop(key, None)
    for key, value in chosen.items():
        section, _, name = key.partition(".")
        values[section][name] = value
    return values
