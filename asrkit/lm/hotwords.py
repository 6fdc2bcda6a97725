"""Hotwords: phrases that a search prefers.

A finished text gets the bonus of a phrase for every occurrence as whole words, even if phrases
overlap. The split of the text into tokens makes no difference.

- A node is a prefix of some phrases. A state is the longest node that is a suffix of the text (Aho
  and Corasick 1975). All phrases begin with the space before their first word, also at the start of
  a text. They are complete if a space or the end of the text follows.
- A text that ends with a part of a phrase gets the same part of the bonus in advance. The advance
  depends only on the state: it is the largest of all phrases' parts. The score of a token is the
  bonus of the phrases that it completes, plus the advance after it minus the advance before it. A
  broken match thus keeps only the advance of the longest shorter match. The end of the text removes
  the whole advance.
- Scores are rounded to multiples of a power of two, so that their sums are exact.
"""

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path

from asrkit.errors import UserError, no_file, shown
from asrkit.lines import LineKind, text_lines
from asrkit.lm.lm_fusion import LIMIT

WEIGHT = 2.0  # natural logarithm per word of a phrase; docs/evidence/results.md has the measurement
MAX_PHRASE = 1000  # characters
MAX_LINE = 65_536  # bytes
MAX_CEILING = 100.0  # largest score of a token: exp(100) fits into the search's numbers
GRID = 2.0**40


class Hotwords:
    """The fusion of hotwords: phrases with a bonus, compiled for a tokenizer.

    Args:
        bonuses: natural logarithm of each phrase's bonus; single spaces separate its words.
        pieces: text of each token, by id; the blank's is ignored. If no piece has a space, as in
            Chinese, phrases match anywhere, not only as whole words.

    Raises:
        ValueError: if the bonuses of nested phrases sum to more than MAX_CEILING at one token.
    """

    def __init__(self, bonuses: Mapping[str, float], pieces: Sequence[str]) -> None:
        self.bonuses = dict(bonuses)
        spaced = any(" " in piece for piece in pieces)
        self.pieces = pieces if spaced else [letters_as_words(piece) for piece in pieces]
        self.next: list[dict[str, int]] = [{" ": 1}, {}]  # node -> letter -> longer node
        self.shorter = [0, 0]  # failure links: the longest other node that is a suffix of the node
        self.spaces = {1}  # nodes that end with a space
        self.advance, self.complete = [0.0, 0.0], [0.0, 0.0]  # of each node
        for phrase, bonus in bonuses.items():
            self.add(f" {phrase}" if spaced else letters_as_words(phrase), bonus)
        self.link()
        self.ceiling = self.upper_bound()
        if self.ceiling > MAX_CEILING:
            raise ValueError(
                f"the weights sum to {self.ceiling:.0f} at one token, more than "
                f"{MAX_CEILING:g}; use smaller weights"
            )

    def add(self, phrase: str, bonus: float) -> None:
        """Add the nodes of a phrase, with its own bonus and advances only."""
        node = 0
        for i, letter in enumerate(phrase):
            if letter not in self.next[node]:
                self.next[node][letter] = len(self.next)
                self.next.append({})
                self.shorter.append(0)
                self.advance.append(0.0)
                self.complete.append(0.0)
            node = self.next[node][letter]
            if letter == " ":
                self.spaces.add(node)
            self.advance[node] = max(self.advance[node], exact(bonus * i / (len(phrase) - 1)))
        self.complete[node] = exact(bonus)

    def link(self) -> None:
        """Set failure links, and add to each node the amounts of all its suffixes."""
        queue = [1]
        for node in queue:
            for letter, longer in self.next[node].items():
                self.shorter[longer] = shorter = self.after(self.shorter[node], letter)
                self.advance[longer] = max(self.advance[longer], self.advance[shorter])
                self.complete[longer] += self.complete[shorter]
                queue.append(longer)

    def upper_bound(self) -> float:
        """Return an upper bound of all tokens' scores, from their letters or their spaces."""
        best = {" ": 0.0}  # largest score of each letter
        for node, longer in enumerate(self.next):
            closed = self.complete[node] + self.advance[self.after(node, " ")] - self.advance[node]
            best[" "] = max(best[" "], closed)
            for letter, after in longer.items():
                best[letter] = max(best.get(letter, 0.0), self.advance[after] - self.advance[node])
        all_complete, all_advance = max(self.complete), max(self.advance)
        return max(
            min(
                sum(best.get(letter, 0.0) for letter in piece),
                piece.count(" ") * all_complete + all_advance,
            )
            for piece in self.pieces
        )

    def after(self, node: int, letter: str) -> int:
        """Return the longest node that is a suffix of the text after one more letter."""
        while letter not in self.next[node]:
            if node == 0:
                return 0
            node = self.shorter[node]
        return self.next[node][letter]

    def start(self) -> int:
        return 1

    def step(self, state: int, token: int) -> tuple[int, float]:
        node, added = state, -self.advance[state]
        for letter in self.pieces[token]:
            if letter == " ":
                if node in self.spaces:
                    continue  # several spaces count as one
                added += self.complete[node]
            node = self.after(node, letter)
        return node, added + self.advance[node]

    def finish(self, state: int) -> float:
        return self.complete[state] - self.advance[state]

    def identity(self) -> str:
        return f"hotwords {sorted(self.bonuses.items())}"


def exact(amount: float) -> float:
    return round(amount * GRID) / GRID


def letters_as_words(text: str) -> str:
    """Return the text with a space before each letter."""
    return "".join(f" {letter}" for letter in text)


def read_hotwords(path: str | Path, weight: float = WEIGHT) -> dict[str, float]:
    """Read the phrases of a file with their weights.

    Args:
        path: text file with a phrase per line, optionally followed by a tab and a weight; empty
            lines and lines that begin with # are ignored.
        weight: weight of phrases without their own.
    """
    if not Path(path).is_file():
        raise UserError(f"the file of hotwords {shown(Path(path))} {no_file(Path(path))}")
    found: dict[str, float] = {}
    kind = LineKind("a list of hotwords", UserError, MAX_LINE)
    for number, text in text_lines(Path(path), kind):
        if (line := text.strip()).startswith("#"):
            continue
        phrase, *own = line.split("\t")
        try:
            (found[phrase],) = map(float, own) if own else (weight,)
        except ValueError:
            raise UserError(
                f"{path}:{number}: expected a phrase, or a phrase, a tab and a number, "
                f"got {shown(line)}"
            ) from None
    return found


def weighed(hotwords: Mapping[str, float] | Iterable[str]) -> dict[str, float]:
    """Check phrases and weights, and return the weights by phrase.

    Args:
        hotwords: weights by phrase, or phrases, whose weight is then WEIGHT.
    """
    if isinstance(hotwords, (str, bytes)) or not isinstance(hotwords, Iterable):
        raise UserError(
            f"hotwords must be a list of phrases, or a dict with weights, got {shown(hotwords)}"
        )
    pairs = (
        hotwords.items()
        if isinstance(hotwords, Mapping)
        else ((phrase, WEIGHT) for phrase in hotwords)
    )
    found: dict[str, float] = {}
    for phrase, weight in pairs:
        if not isinstance(phrase, str):
            raise UserError(f"each hotword must be a string, got {shown(phrase)}")
        if len(phrase) > MAX_PHRASE:
            raise UserError(
                f"hotword {shown(phrase)}: it must have at most {MAX_PHRASE} characters, "
                f"got {len(phrase)}"
            )
        real = isinstance(weight, Real) and not isinstance(weight, bool)
        if not real or not 0.0 <= weight <= LIMIT:
            raise UserError(
                f"hotword {shown(phrase)}: the weight must be between 0 and {LIMIT:g}, "
                f"got {shown(weight)}"
            )
        found[phrase] = float(weight)
    return found
