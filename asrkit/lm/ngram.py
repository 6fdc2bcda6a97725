"""N-gram language models, read from ARPA files into an automaton.

A node is an n-gram of the file; node 0 is the empty n-gram. A state is the node of the longest
context that is in the file. A word leads from a node to the n-gram that is one word longer. If the
file lacks this n-gram, the node's back-off weight is added, and the look-up continues with the next
shorter context (Katz 1987).
"""

import hashlib
import math
import re
from array import array
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn

from asrkit.errors import UserError, no_file, shown
from asrkit.lines import LineKind, lines_in

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
NO_UNKNOWN = -10.0  # log10 of the probability of an unknown word, if a file has no <unk>
MAX_ORDER = 10
MAX_NGRAMS = 10_000_000  # about 1.5 GB of memory
MAX_LINE = 65_536  # bytes
SAMPLE = 10_000  # words whose spelling is compared with a recogniser's
LARGEST = 300.0  # largest absolute log10, about that of the smallest double
MAX_PREAMBLE = 100  # lines before \data\
LN_10 = math.log(10.0)


def is_unknown(word: bytes | str) -> bool:
    """Return whether a word stands for unknown words: <unk> in any case, as in KenLM."""
    return len(word) == len(UNKNOWN) and word.lower() in (UNKNOWN, UNKNOWN.encode())


class ArpaError(UserError):
    """An error in a language model's file; the message names the file and the line."""


class NGram(NamedTuple):
    """A back-off model. Logarithms are natural."""

    order: int
    words: dict[str, int]  # ids from 0 on
    stride: int  # larger than every id
    next: dict[int, int]  # node · stride + id -> node
    log_probs: "array[float]"  # of each node's last word, given the words before it
    backoffs: "array[float]"  # of each node
    shorter: "array[int]"  # of each node, the longest shorter n-gram that it ends with
    sha256: str  # of the words and the n-grams with their numbers

    def start(self) -> int:
        """Return the state at the start of a sentence."""
        return self.next[self.words[BEGIN]]

    def score(self, state: int, word: str) -> tuple[float, int]:
        """Return the log-probability of a word in a state, and the next state."""
        number = self.words.get(word, self.words[UNKNOWN])
        log_prob = 0.0
        while (node := self.next.get(state * self.stride + number)) is None:
            log_prob += self.backoffs[state]
            state = self.shorter[state]
        return log_prob + self.log_probs[node], node

    def finish(self, state: int) -> float:
        """Return the log-probability that the sentence ends in a state."""
        return self.score(state, END)[0]

    def has_word(self, word: str) -> bool:
        """Return whether a word is in the vocabulary; other words are scored as <unk>."""
        return word in self.words

    def words_in_part(self) -> list[str]:
        """Return at most SAMPLE words of the vocabulary, at equal distances."""
        words = [word for word in self.words if word not in (BEGIN, END, UNKNOWN)]
        return words[:: len(words) // SAMPLE + 1]


def read_arpa(path: str | Path) -> NGram:
    """Read the model of an ARPA file, which may be gzipped (.gz)."""
    path = Path(path)
    if not path.is_file():
        raise ArpaError(f"the language model {shown(path)} {no_file(path)}")
    with path.open("rb") as file:
        return _ArpaReader(path, file).read()


class _ArpaReader:
    """A reader of one ARPA file, line by line."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        kind = LineKind("an ARPA file", ArpaError, MAX_LINE)
        self.path, self.lines, self.number = path, lines_in(file, shown(path), kind), 0
        self.words: dict[str, int] = {}
        self.next: dict[int, int] = {}
        self.log_probs, self.backoffs = array("d", [0.0]), array("d", [0.0])
        self.shorter = array("l", [0])

    def read(self) -> NGram:
        line, counts = self.counts()
        self.stride = counts[0] + 1  # room for <unk>
        for order, count in enumerate(counts, start=1):
            if line != b"\\%d-grams:" % order:
                self.refuse(f"expected '\\{order}-grams:', got {as_text(line)}")
            for i in range(count):
                if (line := self.line()).startswith(b"\\") and line.endswith((b":", b"\\")):
                    self.refuse(f"expected {count} {order}-grams as in the header, got only {i}")
                self.entry(line, order, last=order == len(counts))
            line = self.line()
            if order == 1:
                self.check_words()
        if line != b"\\end\\":
            self.refuse(f"expected '\\end\\' after {counts[-1]} n-grams, got {as_text(line)}")
        return NGram(
            len(counts), self.words, self.stride, self.next,
            self.log_probs, self.backoffs, self.shorter, self.sha256(),
        )  # fmt: skip

    def sha256(self) -> str:
        """Hash the model; other spellings of the same file have the same hash."""
        found = hashlib.sha256(f"{self.stride} {len(self.words)}\n".encode())
        for word in self.words:
            found.update(f"{word}\n".encode())
        for numbers in (array("q", self.next), self.log_probs, self.backoffs):
            found.update(numbers)
        return found.hexdigest()

    def line(self) -> bytes:
        """Return the next line that is not empty."""
        self.number, line = next(self.lines, (self.number, b""))
        if not line:
            self.refuse("the file ends before '\\end\\'")
        return line.strip()

    def counts(self) -> tuple[bytes, list[int]]:
        """Return the line after the header, and the number of n-grams of each order."""
        for _ in range(MAX_PREAMBLE):
            if self.line() == b"\\data\\":
                break
        else:
            self.refuse(f"no '\\data\\' in {MAX_PREAMBLE} lines: not an ARPA file")
        counts: list[int] = []
        while match := re.fullmatch(rb"ngram\s+(\d{1,3})\s*=\s*(\d{1,18})", line := self.line()):
            counts.append(int(match[2]))
            if int(match[1]) != len(counts):
                self.refuse(f"expected 'ngram {len(counts)}=', got {as_text(line)}")
        if not counts:
            self.refuse(f"expected 'ngram 1=' and a number, got {as_text(line)}")
        if len(counts) > MAX_ORDER:
            self.refuse(
                f"the order must be at most {MAX_ORDER}, got {len(counts)}; build a smaller model"
            )
        if sum(counts) > MAX_NGRAMS:
            self.refuse(
                f"the model must have at most {MAX_NGRAMS} n-grams, got {sum(counts)}; prune it"
            )
        return line, counts

    def entry(self, line: bytes, order: int, last: bool) -> None:
        """Add the n-gram of a line: log10 probability, words, log10 back-off weight."""
        probability, *fields = line.split()
        if len(fields) != order and (last or len(fields) != order + 1):
            weight = "" if last else ", and optionally a back-off weight"
            self.refuse(f"expected a log10 probability, {order} words{weight}, got {as_text(line)}")
        log_prob = self.float_of(probability)
        if log_prob > 0.0:
            self.refuse(f"log10 of a probability must be at most 0, got {log_prob}")
        backoff = self.float_of(fields.pop()) if len(fields) > order else 0.0
        try:
            words = [UNKNOWN if is_unknown(field) else field.decode() for field in fields]
            self.add(words, log_prob, backoff)
        except UnicodeDecodeError:
            self.refuse(f"not UTF-8: {as_text(line)}")

    def add(self, words: list[str], log_prob: float, backoff: float) -> None:
        """Add the node of an n-gram, after those of its context and its shorter n-grams."""
        *context, word = words
        if not context:
            self.words.setdefault(word, len(self.words))
        for each in words:
            if each not in self.words:
                self.refuse(f"{shown(each)} is not among the 1-grams")
        node, number = 0, self.words[word]
        for each in context:
            found = self.next.get(node * self.stride + self.words[each])
            if found is None:
                self.refuse(f"the context {shown(' '.join(context))} is not among the n-grams")
            node = found
        key = node * self.stride + number
        if key in self.next:
            self.refuse(f"{shown(' '.join(words))} occurs twice")
        self.shorter.append(self.shortened(node, number))
        self.next[key] = len(self.log_probs)
        self.log_probs.append(log_prob * LN_10)
        self.backoffs.append(backoff * LN_10)

    def shortened(self, context: int, number: int) -> int:
        """Return the longest n-gram of this word after a shorter end of this context, or 0."""
        while context:
            context = self.shorter[context]
            found = self.next.get(context * self.stride + number)
            if found is not None:
                return found
        return 0

    def check_words(self) -> None:
        """Reject a file without <s> or </s>, and add <unk> if it is missing."""
        for word in (BEGIN, END):
            if word not in self.words:
                self.refuse(f"{word!r} is not among the 1-grams")
        if UNKNOWN not in self.words:
            self.add([UNKNOWN], NO_UNKNOWN, 0.0)

    def float_of(self, field: bytes) -> float:
        try:
            number = float(field)
        except ValueError:
            number = math.nan
        if not abs(number) <= LARGEST:
            self.refuse(f"expected a number from -{LARGEST:g} to {LARGEST:g}, got {as_text(field)}")
        return number

    def refuse(self, message: str) -> NoReturn:
        raise ArpaError(f"{shown(self.path)}:{self.number}: {message}")


def as_text(line: bytes) -> str:
    """Return a line as printable text, for a message."""
    return shown(line.decode("utf-8", "replace"))
