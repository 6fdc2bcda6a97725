"""Hotwords: phrases that a search prefers.

A finished text has the bonus of every phrase in it, once for each time it occurs as whole words,
also where phrases overlap; how tokens cut the text makes no difference.

- A node is a begin of some phrases, and a state is the longest node that the text ends with (Aho
  and Corasick 1975). All phrases begin with the space before their first word, which every text is
  taken to begin with, and are complete where a space or the end follows.
- A text that ends in part of a phrase is lent the same part of its bonus, the most that any of the
  phrases asks for. What is lent follows from the state alone. A token adds what it completes, and
  what is lent after it less what was lent before: a match that breaks gives back all that it held
  but what a shorter one still holds, and a text that ends gives back all of it.
- Amounts are multiples of a power of two, so that their sums are exact.
"""

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path

from asrkit.errors import UserError, shown
from asrkit.lm.fusion import LIMIT

WEIGHT = 2.0  # natural logarithm for each word of a phrase: README.md says how it was found
MAX_PHRASE = 1000  # characters
MAX_CEILING = 100.0  # what a token may add: e to that fits into the search's numbers
GRID = 2.0**40


class Hotwords:
    """Phrases as a search sees them.

    Args:
        bonuses: natural logarithms by phrases, which are words with single spaces.
        pieces: what each token adds to the text, by id; anything for the blank. If none of them
            writes a space, as in Chinese, phrases count wherever they stand.

    Raises:
        ValueError: if phrases inside each other add up to more than a search can hold.
    """

    def __init__(self, bonuses: Mapping[str, float], pieces: Sequence[str]) -> None:
        spaced = any(" " in piece for piece in pieces)
        self.pieces = pieces if spaced else [spread(piece) for piece in pieces]
        self.next: list[dict[str, int]] = [{" ": 1}, {}]  # node -> letter -> longer node
        self.shorter = [0, 0]  # the longest other node that the node ends with
        self.spaces = {1}  # nodes that end with a space
        self.lent, self.complete = [0.0, 0.0], [0.0, 0.0]
        for phrase, bonus in bonuses.items():
            self.add(f" {phrase}" if spaced else spread(phrase), bonus)
        self.link()
        self.ceiling = self.most()
        if self.ceiling > MAX_CEILING:
            raise ValueError(
                f"together they add up to {self.ceiling:.0f} at one token, more than "
                f"{MAX_CEILING:g}; give them less weight"
            )

    def add(self, phrase: str, bonus: float) -> None:
        """The nodes of a phrase, with what it lends by itself."""
        node = 0
        for i, letter in enumerate(phrase):
            if letter not in self.next[node]:
                self.next[node][letter] = len(self.next)
                self.next.append({})
                self.shorter.append(0)
                self.lent.append(0.0)
                self.complete.append(0.0)
            node = self.next[node][letter]
            if letter == " ":
                self.spaces.add(node)
            self.lent[node] = max(self.lent[node], exact(bonus * i / (len(phrase) - 1)))
        self.complete[node] = exact(bonus)

    def link(self) -> None:
        """What nodes have of the shorter ones that they end with, from the shortest on."""
        queue = [1]
        for node in queue:
            for letter, longer in self.next[node].items():
                self.shorter[longer] = shorter = self.after(self.shorter[node], letter)
                self.lent[longer] = max(self.lent[longer], self.lent[shorter])
                self.complete[longer] += self.complete[shorter]
                queue.append(longer)

    def most(self) -> float:
        """More than a token adds: the most that its letters could, or all that is complete."""
        best = {" ": 0.0}  # of each letter
        for node, longer in enumerate(self.next):
            closed = self.complete[node] + self.lent[self.after(node, " ")] - self.lent[node]
            best[" "] = max(best[" "], closed)
            for letter, after in longer.items():
                best[letter] = max(best.get(letter, 0.0), self.lent[after] - self.lent[node])
        all_complete, all_lent = max(self.complete), max(self.lent)
        return max(
            min(
                sum(best.get(letter, 0.0) for letter in piece),
                piece.count(" ") * all_complete + all_lent,
            )
            for piece in self.pieces
        )

    def after(self, node: int, letter: str) -> int:
        """The longest node that the text ends with, one letter later."""
        while letter not in self.next[node]:
            if node == 0:
                return 0
            node = self.shorter[node]
        return self.next[node][letter]

    def start(self) -> int:
        return 1

    def step(self, state: int, token: int) -> tuple[int, float]:
        node, added = state, -self.lent[state]
        for letter in self.pieces[token]:
            if letter == " ":
                if node in self.spaces:
                    continue  # spaces count once
                added += self.complete[node]
            node = self.after(node, letter)
        return node, added + self.lent[node]

    def finish(self, state: int) -> float:
        return self.complete[state] - self.lent[state]


def exact(amount: float) -> float:
    return round(amount * GRID) / GRID


def spread(text: str) -> str:
    """Each letter as a word."""
    return "".join(f" {letter}" for letter in text)


def read_hotwords(path: str | Path, weight: float = WEIGHT) -> dict[str, float]:
    """The phrases of a file with their weights.

    Args:
        path: a phrase a line, which a tab and its own weight may follow; empty lines and lines that
            begin with # say nothing.
        weight: of the others.

    Raises:
        UserError: for a line that is none of that, named by its number.
    """
    if not Path(path).is_file():
        raise UserError(f"no file of hotwords {path}")
    found: dict[str, float] = {}
    for number, raw in enumerate(Path(path).read_bytes().splitlines(), start=1):
        try:
            line = raw.decode("utf-8-sig").strip()
            if line and not line.startswith("#"):
                phrase, *own = line.split("\t")
                (found[phrase],) = map(float, own) if own else (weight,)
        except UnicodeDecodeError:
            raise UserError(f"{path}:{number}: not UTF-8") from None
        except ValueError:
            raise UserError(
                f"{path}:{number}: expected a phrase, or a phrase, a tab and a number, "
                f"got {shown(line)}"
            ) from None
    return found


def weighed(hotwords: Mapping[str, float] | Iterable[str]) -> dict[str, float]:
    """Phrases with their weights, those of a list with the usual one.

    Raises:
        UserError: for a text, which is no list; for a phrase that is no text or too long, or a
            weight out of range.
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
            raise UserError(f"hotwords must be texts, got {shown(phrase)} among them")
        if len(phrase) > MAX_PHRASE:
            raise UserError(
                f"hotword {shown(phrase)}: {len(phrase)} characters, more than {MAX_PHRASE}"
            )
        real = isinstance(weight, Real) and not isinstance(weight, bool)
        if not real or not 0.0 <= weight <= LIMIT:
            raise UserError(
                f"hotword {shown(phrase)}: the weight must be between 0 and {LIMIT:g}, "
                f"got {shown(weight)}"
            )
        found[phrase] = float(weight)
    return found
