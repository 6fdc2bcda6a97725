"""A dialect without a connection: messages in, items and messages out."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from asrkit.runtime import Segment, Word
from asrkit.runtime.words import joined
from asrkit.serve.calls import CallUpdate
from asrkit.serve.converse import Append, Begin, Dialect
from asrkit.serve.server import Grant, Server


class Offline:
    """A dialect whose wishes a server grants.

    Attributes:
        begun: the calls that have begun.
        grant: the grant of the last of them.
        said: items and messages of the new connection.
    """

    grant: Grant

    def __init__(self, dialect: Dialect, server: Server) -> None:
        self.dialect, self.server, self.begun = dialect, server, list[Begin]()
        self.said = self.done(dialect.open())

    def done(self, items: Iterable[Any]) -> list[Any]:
        """Items and messages; the messages of a new call come in place of its item."""
        found: list[Any] = []
        for item in items:
            if isinstance(item, Begin):
                self.begun.append(item)
                self.grant = asyncio.run(self.server.grant(item.wish))
                found += self.dialect.begun(item, self.grant)
            else:
                found.append(item)
        return found

    def read(self, *messages: Any) -> list[Any]:
        return [each for message in messages for each in self.done(self.dialect.read(message))]

    def samples(self, *messages: Any) -> list[list[int]]:
        """The samples of the items of messages."""
        items = self.read(*messages)
        return [each.samples.tolist() for each in items if isinstance(each, Append)]

    def write(self, *segments: Segment, channel: int = 0, **state: Any) -> list[Any]:
        return [*self.dialect.write(channel, update(*segments, **state))]


def words(text: str, start: float = 0.0) -> tuple[Word, ...]:
    """Words of 0.4 s, each of which begins half a second after the one before."""
    found = enumerate(text.split())
    return tuple(Word(each, start + 0.5 * i, start + 0.5 * i + 0.4, 0.5) for i, each in found)


def segment(text: str, start: float = 0.0, end: float = 1.0, **more: Any) -> Segment:
    return Segment(text, words(text, start), start, end, **more)


def update(
    *segments: Segment, live: str = "", start: float = 0.0, stable: str = "", seconds: float = 0.0,
    commits: int = 0, is_final: bool = False,
) -> CallUpdate:  # fmt: skip
    """An update with these segments, and the words `live` of the open one."""
    found, own = CallUpdate(), words(live, start)
    found.segments, found.words, found.text = [*segments], own, joined(own)
    found.stable_text, found.seconds, found.commits = stable, seconds, commits
    found.is_final = is_final
    return found


def fields(messages: Sequence[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    """These fields of messages."""
    return [tuple(each.get(name) for name in names) for each in messages]
