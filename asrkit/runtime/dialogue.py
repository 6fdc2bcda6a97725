"""A recording whose channels are speakers: its turns in order of time."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from asrkit.runtime.words import Word, joined

PAUSE_SECONDS = 1.0  # pause that ends a turn, whoever speaks


class OfChannel(Protocol):
    """A value that belongs to a recording, or to one channel of it."""

    @property
    def id(self) -> str: ...
    @property
    def channel(self) -> int | None: ...


T = TypeVar("T", bound=OfChannel)


class Turn(NamedTuple):
    """Words of one speaker."""

    channel: int  # index of the speaker
    words: list[Word]

    @property
    def text(self) -> str:
        return joined(self.words)

    @property
    def start(self) -> float:
        return self.words[0].start

    @property
    def end(self) -> float:
        return self.words[-1].end


def calls(items: Sequence[T]) -> list[list[T]]:
    """Group the channels of a recording: neighbours of one id whose channels count up."""
    groups: list[list[T]] = []
    for item in items:
        last = groups[-1][-1] if groups else None
        if last and last.id == item.id and item.channel and last.channel == item.channel - 1:
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups


def turns(speakers: Sequence[Sequence[Word]]) -> list[Turn]:
    """Return the turns of all speakers by their starts. Turns of two speakers may overlap.

    A pause of PAUSE_SECONDS ends a turn, and so does a shorter one in which another speaker begins
    and ends a word.

    Args:
        speakers: words of each speaker.
    """
    said = [(word, number) for number, words in enumerate(speakers) for word in words]
    found: list[Turn] = []
    latest: dict[int, Turn] = {}  # latest turn of each speaker
    broken: dict[int, float] = {}  # end of another's first word after this turn
    for word, number in sorted(said, key=lambda each: (each[0].start, each[1])):
        own = latest.get(number)
        pause = PAUSE_SECONDS if own is None else round(word.start - own.end, 3)
        if own is None or pause >= PAUSE_SECONDS or broken.get(number, word.end) <= word.start:
            latest[number] = own = Turn(number, [])
            found.append(own)
        own.words.append(word)
        broken.pop(number, None)
        for other, turn in latest.items():
            if other != number and word.start >= turn.end:
                broken[other] = min(word.end, broken.get(other, word.end))
    return found
