"""A conversation whose call outlives its connection, and its process if the store does."""

import asyncio
import logging
import secrets
from contextlib import suppress
from typing import Any

from asrkit.errors import UserError, reason
from asrkit.serve.admission import CLIENT
from asrkit.serve.calls import Call
from asrkit.serve.converse import Begin, Conversation, WebSocketLine
from asrkit.serve.dialects.asrkit_stream import AsrkitStream
from asrkit.serve.dialects.messages import Resume, Start
from asrkit.serve.resumption import SuspendedCall, from_bytes, name_of, to_bytes
from asrkit.serve.server import RefusedError, Server
from asrkit.serve.store import StoredCall

logger = logging.getLogger(__name__)


class MovedError(RefusedError):
    """The error of a connection whose call continues on another connection."""

    def __init__(self) -> None:
        super().__init__(409, "moved", "the call continues on another connection")


class ResumableConversation(Conversation):
    """A connection of a call that its client can resume on another connection.

    Between two connections the server's store has the call as bytes.

    Args:
        line: connection to the client.
        server: server of the calls.
        dialect: protocol of the connection.
    """

    line: WebSocketLine
    dialect: AsrkitStream

    def __init__(self, line: WebSocketLine, server: Server, dialect: AsrkitStream) -> None:
        super().__init__(line, server, dialect)
        self.name, self.generation = "", 0  # of the call in the store
        self.last: SuspendedCall  # state of the call in the store
        self.left = asyncio.Event()

    async def run(self) -> None:
        """Like `Conversation.run`; save the call at the end, unless its client has all of it."""
        try:
            await super().run()
        except MovedError:
            with suppress(MovedError):
                await self.save_last()
            raise
        except UserError:
            if self.calls:  # a rejected resume leaves the call in the store
                await self.server.store.drop(self.name, self.generation)
            raise
        except BaseException:
            await self.save_last()
            raise
        finally:
            self.server.resumable.pop(self.name, None)
            self.left.set()

    async def do(self, item: Any) -> None:
        if isinstance(item, Start):
            await self.own(secrets.token_urlsafe(12), secrets.token_urlsafe(24))
            await self.begin(self.dialect.begin(SuspendedCall(item)))
        elif isinstance(item, Resume):
            await self.own(item.id, item.token)
            await self.begin(self.dialect.begin(await self.take(item.ack), item.finals))
        else:
            await super().do(item)

    async def own(self, id: str, token: str) -> None:
        """Take the call from any other connection of this process."""
        self.dialect.id, self.dialect.token = id, token
        name, others = name_of(id, token), self.server.resumable
        while (other := others.get(name)) is not None:
            other.fail(MovedError())
            await other.left.wait()
        others[name], self.name = self, name

    async def take(self, ack: int) -> SuspendedCall:
        """Take the call from the store, for this connection.

        Raises:
            RefusedError: if the store has no call of this id and token, or only an older state than
                the client has acknowledged, for example because a file was restored from a backup.
        """
        try:
            entry = await self.server.store.take(self.name)
        except OSError as error:
            raise RefusedError(503, "streams", f"calls cannot be read: {reason(error)}") from None
        if entry is None:
            raise RefusedError(404, "unknown", "the call is unknown or has expired: start another")
        call = from_bytes(entry.data, self.server.key, self.name)
        if call.first.received < ack:
            raise RefusedError(409, "stale", "only an older state of the call is left")
        self.generation = entry.generation
        return call

    async def begin(self, item: Begin) -> None:
        self.last = item.settings
        await super().begin(item)
        if self.server.store.survives:
            self.start(self.keep_saving())

    async def admitted(self, item: Begin) -> None:
        if self.server.store.survives:
            await self.put(self.last)

    async def write(self, channel: int, call: Call) -> None:
        while (update := await call.next_update()) is not None:
            self.dialect.ack = (
                self.last.first.received if self.server.store.survives else self.received
            )
            await self.say(self.dialect.write(channel, update))

    async def close(self, writers: "list[asyncio.Task[None]]") -> None:
        await asyncio.gather(*writers)
        self.dialect.ack = self.received  # for the last message
        await super().close(writers)

    async def conclude(self) -> None:
        """Like `Conversation.conclude`; save the call unless its client says that it has all."""
        for call in self.calls:
            self.server.calls.pop(call, None)  # its place is free at once
        if not await self.line.is_satisfied():
            await self.save_last()
        await super().conclude()

    @property
    def received(self) -> int:
        """Number of samples that the sessions of all channels have."""
        return min(call.received for call in self.calls)

    async def save_last(self) -> None:
        """Save the call when its connection ends."""
        for call in self.calls:  # however long the store takes
            self.server.calls.pop(call, None)
        if self.calls and self.calls[0].has_audio:
            await self.save()
        elif self.calls:
            await self.put(self.last)

    async def save(self) -> None:
        """Save the current state of the call.

        Raises:
            MovedError: if another process has taken the call.
        """
        saved = await asyncio.gather(*[call.save() for call in self.calls])  # of the same audio
        await self.put(SuspendedCall(self.last.start, tuple(saved)))

    async def put(self, value: SuspendedCall) -> None:
        """Write a state of the call to the store.

        Raises:
            MovedError: if another process has taken the call.
        """
        data = to_bytes(value, self.server.key, self.name)
        seconds = value.first.received / value.start.sample_rate
        entry = StoredCall(self.generation, data, CLIENT.get(), seconds)
        try:
            if not await self.server.store.put(self.name, entry):
                raise MovedError
        except OSError as error:
            logger.warning("a call could not be saved: %s", reason(error))  # the call continues
            return
        self.last = value

    async def keep_saving(self) -> None:
        """Save the call every `save_s`."""
        while True:
            await asyncio.sleep(self.server.limits.save_s)
            if self.calls[0].has_audio:
                await self.save()
