"""A word with its times."""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Word(NamedTuple):
    """A word, or a unit of a script without spaces: a character with what belongs to it."""

    text: str
    start: float  # seconds from the start of the stream
    end: float
    confidence: float  # 0 to 1, the product of its tokens'

    @property
    def spaced(self) -> bool:
        """Whether a space comes before it in the text."""
        return True

    def as_json(self) -> dict[str, Any]:
        """Its fields; `spaced` only where it is false."""
        return self._asdict() | ({} if self.spaced else {"spaced": False})

    def with_space(self, spaced: bool) -> "Word":
        """The same word with or without a space before it."""
        return (Word if spaced else AttachedWord)(*self)


class AttachedWord(Word):
    """A word without a space before it, in a script that has none."""

    __slots__ = ()

    @property
    def spaced(self) -> bool:
        return False


def joined(words: Sequence[Word]) -> str:
    """The text of words."""
    return "".join(f" {w.text}" if w.spaced and i else w.text for i, w in enumerate(words))


def whole(words: Sequence[Word]) -> list[Word]:
    """Words as spaces part them: units without a space before them are joined."""
    found: list[Word] = []
    for word in words:
        if word.spaced or not found:
            found.append(word)
        else:
            before = found[-1]
            found[-1] = before._replace(
                text=before.text + word.text, end=word.end,
                confidence=before.confidence * word.confidence,
            )  # fmt: skip
    return found
