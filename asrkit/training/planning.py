"""Rules that choose the settings of a training by measurements of its corpus."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from asrkit.build import build_normalizer
from asrkit.config.read_yaml import read_values
from asrkit.data.checks.facts import Facts
from asrkit.evaluation.written import is_mark
from asrkit.model_file import ModelFile
from asrkit.training.dev_texts import unwritable
from asrkit.training.schedule import epochs_for

Values = dict[str, dict[str, Any]]  # of a configuration, by section and key

# The nearest measured configuration by hours of recordings: up to these hours, its name.
BASES = ((2.0, "conformer"), (40.0, "librispeech5"), (400.0, "librispeech100"),
         (math.inf, "librispeech"))  # fmt: skip
FEW_WORDS, OFTEN = 300, 10  # most words of a set of commands, least mean occurrence of each
SUBWORD_HOURS = 4.0  # from which sub-words were better than characters here
UNWRITTEN = 0.02  # largest share of words that a ready model cannot write
WRITTEN = 0.02  # least share of words with capitals, and with marks, of written text
SCRIPT = 500  # different characters from which each is a syllable or a word
# Settings that a first training takes by the corpus, and fine-tuning from conf/finetune.yaml.
FROM_SCRATCH = ("data.max_batch_seconds", "augmentation.spec_frequency_bins", "training.epochs")
NOT_OURS = ("recipe", "licence", "languages")  # keys about the corpus of a shipped configuration


class Rates(NamedTuple):
    """Word error rates that a training reached on its dev set, in percent."""

    hours: float  # of training recordings
    words: int  # different words of its texts
    labels: str
    corpus: str
    full: float
    live: float  # in chunks of 640 ms


# The measured rows of docs/training.md, section "Choose a configuration".
REACHED = (
    Rates(
        0.17, 98, "words", "ten minutes of an4: letters and commands, other speakers", 25.3, 25.7
    ),
    Rates(0.25, 10, "words", "fsdd: single digits, the same speakers", 0.4, 0.4),
    Rates(0.25, 10, "characters", "fsdd: single digits, the same speakers", 2.4, 2.4),
    Rates(0.62, 98, "words", "an4: letters and commands, other speakers", 7.67, 7.67),
    Rates(0.62, 98, "characters", "an4: letters and commands, other speakers", 7.17, 8.5),
    Rates(4.3, 6255, "unigram", "librispeech-mini: audiobooks, other speakers", 54.9, 59.3),
    Rates(4.3, 6255, "characters", "librispeech-mini: audiobooks, other speakers", 58.24, 60.59),
)
LIKE = 4.0  # largest ratio of the hours, and of the numbers of words, of similar corpora


class Corpus(NamedTuple):
    """A corpus to plan for."""

    train: Sequence[Facts]  # of readable utterances
    dev: Sequence[Facts]
    paths: tuple[str, str]  # manifests of both
    band: int  # highest frequency in Hz that the recordings have; 0 for the full 8 kHz
    on_gpu: bool


class Measures:
    """Measures of a corpus that the rules read."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        lengths = [each.seconds or 0.0 for each in corpus.train]
        self.hours, self.median = sum(lengths) / 3600, statistics.median(lengths)
        self.longest = max(each.seconds or 0.0 for each in [*corpus.train, *corpus.dev])
        self.words, self.dev_words = (
            Counter(word for each in part for word in each.text.split())
            for part in (corpus.train, corpus.dev)
        )
        self.characters = {letter for word in self.words for letter in word}

    @cached_property
    def is_commands(self) -> bool:
        """Whether the texts are a fixed set of words, each frequent, that dev does not exceed."""
        known = self.dev_words.keys() <= self.words.keys()
        few = 0 < len(self.words) <= FEW_WORDS
        return known and few and self.words.total() >= OFTEN * len(self.words)

    @property
    def is_written(self) -> bool:
        """Whether many words have a capital and small letters, and many a mark behind them."""
        capital = sum(
            n for word, n in self.words.items() if word not in (word.lower(), word.upper())
        )
        marked = sum(n for word, n in self.words.items() if is_mark(word[-1]))
        return min(capital, marked) >= WRITTEN * self.words.total()

    @property
    def labels(self) -> str:
        if self.is_commands:
            return "words"
        sub = self.hours >= SUBWORD_HOURS and len(self.characters) <= SCRIPT
        return "unigram" if sub else "characters"


class Rule(NamedTuple):
    """A setting that differs from the base configuration when a condition holds."""

    key: str
    when: Callable[[Measures], Any]
    value: Callable[[Measures], Any]
    why: str


RULES = (
    Rule("data.max_batch_seconds", lambda m: not m.corpus.on_gpu,
         lambda m: min(24, max(5, round(4 * m.median))),
         "four utterances of the median length, 5 to 24 s: small corpora need many steps"),
    Rule("data.max_seconds", lambda m: m.longest > 30,
         lambda m: min(40, math.ceil(m.longest)), "the longest utterance, at most 40 s"),
    Rule("text.tokenizer", lambda m: m.labels == "words", lambda m: "words",
         "a fixed set of frequent words, which has all words of dev"),
    Rule("text.tokenizer", lambda m: m.labels == "characters", lambda m: "characters",
         "can write every word; sub-words need 4 h of recordings"),
    Rule("text.tokenizer", lambda m: m.labels == "unigram", lambda m: "unigram",
         "sub-words: 4 h or more of recordings with many words"),
    Rule("text.vocab_size", lambda m: m.labels == "unigram",
         lambda m: 128 if m.hours < 8 else 256 if m.hours < 40 else 300 if m.hours < 400 else 500,
         "by the hours of recordings"),
    Rule("text.case", lambda m: True, lambda m: "keep", "as the texts are written"),
    Rule("text.written", lambda m: m.is_written, lambda m: True,
         "capitals and marks: scored beside the words by the extra written"),
    Rule("model.num_layers", lambda m: 8 <= m.hours < 40, lambda m: 6, "3 M parameters from 8 h"),
    Rule("model.dim", lambda m: 8 <= m.hours < 40, lambda m: 144, "the same"),
    Rule("model.ffn_dim", lambda m: 8 <= m.hours < 40, lambda m: 576, "the same"),
    Rule("model.num_mels", lambda m: m.corpus.band, lambda m: 4 * round(m.corpus.band / 267),
         "as fine as 80 bins to 8 kHz"),
    Rule("model.frontend", lambda m: m.corpus.band,
         lambda m: {"kind": "kaldi", "high_frequency": m.corpus.band},
         "no sound above it here; leave both lines out to decode wideband audio too"),
    Rule("augmentation.spec_frequency_bins", lambda m: m.corpus.band,
         lambda m: m.corpus.band // 200, "a third of the bins"),
    Rule("augmentation.spec_time_masks", lambda m: m.median < 1, lambda m: 2,
         "utterances of less than a second"),
    Rule("augmentation.spec_time_frames", lambda m: m.median < 1, lambda m: 10, "the same"),
    Rule("augmentation.spec_probability", lambda m: m.hours < 0.1, lambda m: 0,
         "too little audio to hide any"),
    Rule("training.epochs", lambda m: m.hours < 2 and m.is_commands,
         lambda m: max(8, round(epochs_for(3.02 * m.hours, [0.9, 1.0, 1.1]) / 2)),
         "28 / √hours passes at three speeds: words need half as many as characters"),
    Rule("training.epochs", lambda m: m.hours < 8 and not m.is_commands,
         lambda m: epochs_for(3.02 * m.hours, [0.9, 1.0, 1.1]),
         "56 / √hours passes, at least 24, at three speeds"),
    Rule("training.epochs", lambda m: 8 <= m.hours < 40, lambda m: 20, "as of 10 h of recordings"),
    Rule("training.average", lambda m: True, lambda m: "auto", "the last fifth of the epochs"),
)  # fmt: skip


def planned(m: Measures, start: str | None, output_dir: str) -> tuple[Values, dict[str, str]]:
    """Return the values of a configuration, and the reasons of those that the corpus determines.

    Args:
        start: model to fine-tune, which has its own network and labels; None to begin anew.
    """
    base = next(name for hours, name in BASES if m.hours < hours) if start is None else "finetune"
    values: Values = read_values(base, [])
    reasons = {"": f"begins with conf/{base}.yaml, by the {m.hours:.2f} h of recordings"}
    for key in NOT_OURS:
        values["data"].pop(key, None)
    paths = {"data.train": m.corpus.paths[0], "data.dev": m.corpus.paths[1]}
    chosen = [*paths.items(), ("training.output_dir", output_dir)]
    if start is not None:
        chosen.append(("training.start_from", start))
        reasons["training.start_from"] = "its network and labels are kept"
    for rule in RULES:
        section = rule.key.partition(".")[0]
        if section in values and rule.when(m) and not (start and rule.key in FROM_SCRATCH):
            chosen.append((rule.key, rule.value(m)))
            reasons[rule.key] = rule.why
    for key, value in chosen:
        section, name = key.split(".")
        values[section][name] = value
    if values["augmentation"].get("spec_probability") == 0:  # the others would have no effect
        values["augmentation"] = {
            key: value for key, value in values["augmentation"].items()
            if not key.startswith("spec_") or key == "spec_probability"
        }  # fmt: skip
    reasons = {
        key: why for key, why in reasons.items()
        if not key or key.partition(".")[2] in values[key.partition(".")[0]]
    }  # fmt: skip
    if values.get("text", {}).get("tokenizer") in ("characters", "words"):
        values["text"].pop("vocab_size", None)
    return values, reasons


def writes(file: ModelFile, m: Measures) -> bool:
    """Return whether a model's labels can write nearly all words of both sets."""
    spell, words = build_normalizer(file.config.text), Counter[str]()
    for word, count in (m.words + m.dev_words).items():
        words[spell(word)] += count
    return unwritable(words, file.tokenizer).total() <= UNWRITTEN * words.total()


def similar(m: Measures) -> tuple[list[Rates], bool]:
    """Return the nearest measured trainings, and whether they are of a similar corpus.

    The distance is that of the hours and of the numbers of different words, as ratios.
    """

    def distances(rates: Rates) -> tuple[float, float]:
        pairs = (rates.hours, m.hours), (rates.words, max(1, len(m.words)))
        hours, words = (abs(math.log(one / other)) for one, other in pairs)
        return hours, words

    order = sorted(REACHED, key=lambda r: (round(sum(distances(r)), 6), r.labels != m.labels))
    like = [each for each in order if max(distances(each)) <= math.log(LIKE)]
    return (like or order)[:2], bool(like)
