"""A dialect without a connection: messages in, items and messages out."""

import asyncio
from collections.abc import Iterable
from typing import Any

from asrkit.runtime import Segment, Word
from asrkit.runtime.words import joined
from asrkit.serve.calls import CallUpdate
from asrkit.serve.converse import Append, Begin, Dialect
from asrkit.serve.server import Grant, Server

BEGUN, ENDED = "the call that has begun last", "the call has ended"  # in place of a message


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
            elif isinstance(item, Append):
                found.append(item._replace(samples=item.samples.tolist()))
            else:
                found.append(item)
        return found

    def answer(self, sent: Any) -> list[Any]:
        """Answer messages of a client, an update, or the update of a channel."""
        match sent:
            case "the call that has begun last":
                return [self.begun[-1]._asdict() | self.begun[-1].wish._asdict()]
            case "the call has ended":
                return [*self.dialect.ended()]
            case CallUpdate():
                return [*self.dialect.write(0, sent)]
            case int(channel), CallUpdate() as new:
                return [*self.dialect.write(channel, new)]
            case list():
                return [each for message in sent for each in self.answer(message)]
        return self.done(self.dialect.read(sent))


def fits(found: Any, expected: Any) -> bool:
    """Whether a value is the expected one; objects may have more keys than expected."""
    if isinstance(expected, dict):
        fields = found if isinstance(found, dict) else {"type": found.type, **found.data}
        return all(key in fields and fits(fields[key], each) for key, each in expected.items())
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) == len(expected) and all(map(fits, found, expected))
    return bool(found == expected)


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
    own = words(live, start)
    return CallUpdate([*segments], own, joined(own), stable, seconds, commits, is_final)
