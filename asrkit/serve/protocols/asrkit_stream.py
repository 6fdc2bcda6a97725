"""asrkit's own protocol, /v1/stream: a start message, binary audio, partial and final texts.

`asrkit.serve.protocols.messages` defines the messages. A call outlives its connection, and also its
process if the store does. The client resumes the call with a resume message, and continues with the
first sample that the server has not received.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from starlette.websockets import WebSocket, WebSocketDisconnect

from asrkit.audio.opus import OpusDecoder
from asrkit.errors import UserError, reason, shown
from asrkit.serve import resumption
from asrkit.serve.admission import CLIENT
from asrkit.serve.calls import Call
from asrkit.serve.protocols import messages
from asrkit.serve.protocols.messages import (
    ENCODINGS,
    Commit,
    End,
    Ended,
    Error,
    Partial,
    Resume,
    Start,
    Started,
)
from asrkit.serve.protocols.samples import append_channels, cut_off, samples_of
from asrkit.serve.protocols.websockets import (
    all_ways,
    closed,
    next_message,
    send_text,
    telling,
)
from asrkit.serve.resumption import SuspendedCall
from asrkit.serve.server import RefusedError, Server
from asrkit.serve.store import StoredCall

logger = logging.getLogger(__name__)


def error(reason: str, message: str) -> str:
    return Error(reason=reason, message=message).model_dump_json()


async def stream(websocket: WebSocket, server: Server) -> None:
    """Serve a connection: a whole call, or a part of one."""
    async with telling(websocket, server, error):
        first = await first_message(websocket, server)
        if isinstance(first, Resume):
            line = Line(server, first.id, first.token)
            async with line.alone():
                await line.run(websocket, await line.taken_up(first.ack), first.finals)
        else:
            line = Line(server, secrets.token_urlsafe(12), secrets.token_urlsafe(24))
            async with line.alone():
                await line.run(websocket, SuspendedCall(first))


async def first_message(websocket: WebSocket, server: Server) -> Start | Resume:
    message = await next_message(websocket, server, is_first=True)
    first = messages.parsed(message) if isinstance(message, str) else None
    if not isinstance(first, Start | Resume):
        raise UserError("the first message must be a start or a resume")
    return first


class MovedError(RefusedError):
    """The error of a connection whose call continues on another connection."""

    def __init__(self) -> None:
        super().__init__(409, "moved", "the call continues on another connection")


class Line:
    """A connection of a call. Between two connections the server's store has the call as bytes.

    Args:
        server: server of the call.
        id: id of the call, with which its client resumes it.
        token: secret of the call, with which its client resumes it.
    """

    def __init__(self, server: Server, id: str, token: str) -> None:
        self.server, self.id, self.token = server, id, token
        self.name = resumption.name_of(id, token)
        self.generation = 0  # of the call in the store
        self.last: SuspendedCall  # state of the call in the store
        self.reported = False  # whether the client has received an update since then
        self.opus: OpusDecoder | None = None
        self.warning = ""  # for the last message
        self.has_all = False  # whether the client has received the last message
        self.moved = asyncio.Event()  # set when another connection takes over
        self.left = asyncio.Event()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """A context manager in which no other connection of this process has the call."""
        lines = self.server.lines
        while (other := lines.get(self.name)) is not None:
            other.moved.set()
            await other.left.wait()
        lines[self.name] = self
        try:
            yield
        finally:
            del lines[self.name]
            self.left.set()

    async def taken_up(self, ack: int) -> SuspendedCall:
        """Take the call from the store, for this connection.

        Raises:
            RefusedError: if the store has no call of this id and token, or only an older state,
                for example because files were restored from a backup.
        """
        try:
            entry = await self.server.store.take(self.name)
        except OSError as error:
            raise RefusedError(503, "streams", f"calls cannot be read: {reason(error)}") from None
        if entry is None:
            raise RefusedError(404, "unknown", "the call is unknown or has expired: start another")
        call = resumption.from_bytes(entry.data, self.server.key, self.name)
        if call.received < ack:
            raise RefusedError(409, "stale", "only an older state of the call is left")
        self.generation = entry.generation
        return call

    async def run(
        self, websocket: WebSocket, first: SuspendedCall, finals: int | list[int] = 0
    ) -> None:
        """Begin or continue the call; its client has the first `finals` segments already."""
        start, saved, _ = self.last = first
        counts = finals if isinstance(finals, list) else [finals]
        counts = counts * start.channels if counts == [0] else counts
        if len(counts) != start.channels:
            raise UserError(f"finals: expected {start.channels} numbers, got {shown(finals)}")
        if start.encoding == "opus":
            self.opus = OpusDecoder(first.received, first.packets)
        model = self.server.model(start.model)
        recognizer = await self.server.recognizer_for(
            model, start.hotwords, start.pause_ms, start.end_of_turn
        )
        with ExitStack() as stack:
            calls = [
                stack.enter_context(self.server.call(model, start.sample_rate, recognizer, each))
                for each in saved or [None] * start.channels
            ]
            started = Started(
                model=model.name, context=recognizer.context, id=self.id, token=self.token,
                ack=first.received, commits=first.commits,
            )  # fmt: skip
            try:
                if self.server.store.survives:
                    await self.put(first, calls)
                try:
                    await self.talk(websocket, calls, started, counts)
                finally:  # also after the end: the client may not receive the last messages
                    self.free(calls)
                    if not self.has_all:
                        await self.keep_last(calls)
            except (WebSocketDisconnect, MovedError):
                raise
            except UserError:
                await self.server.store.drop(self.name, self.generation)
                raise

    async def talk(
        self, websocket: WebSocket, calls: list[Call], started: Started, finals: list[int]
    ) -> None:
        """Send the first message, then receive and send to the end of the call."""
        await send_text(websocket, started.model_dump_json())
        writers = [self.write(websocket, calls, *each) for each in enumerate(finals)]
        beside = [self.leave(), *([self.keep_on(calls)] if self.server.store.survives else [])]
        await all_ways(self.read(websocket, calls), writers, self.end(websocket, calls), *beside)

    async def keep(self, calls: list[Call]) -> None:
        """Save the current state of the call.

        Raises:
            MovedError: if another process has taken the call.
        """
        self.reported = False
        saved = await asyncio.gather(*[call.save() for call in calls])  # of the same audio
        packets = tuple(self.opus.past(saved[0].received)) if self.opus else ()
        await self.put(SuspendedCall(self.last.start, tuple(saved), packets), calls)

    def free(self, calls: list[Call]) -> None:
        """Free the call's place when it ends, however long the client and the store take."""
        for call in calls:
            self.server.free(call)

    async def keep_last(self, calls: list[Call]) -> None:
        """Save the call when its connection ends, if the client has received anything since.

        Otherwise the client can send its audio again.
        """
        if not self.server.store.survives:
            await (self.keep(calls) if self.reported else self.put(self.last, calls))
        elif self.has_news(calls):
            await self.keep(calls)

    def has_news(self, calls: list[Call]) -> bool:
        """Whether the store has an older state than the client."""
        saved = self.last.received / self.last.start.sample_rate
        return calls[0].seconds > saved or self.reported

    async def put(self, value: SuspendedCall, calls: list[Call]) -> None:
        """Write a state of the call to the store.

        Raises:
            MovedError: if another process has taken the call.
        """
        data = resumption.to_bytes(value, self.server.key, self.name)
        entry = StoredCall(self.generation, data, CLIENT.get(), calls[0].seconds)
        try:
            if not await self.server.store.put(self.name, entry):
                raise MovedError
        except OSError as error:
            logger.warning("a call could not be saved: %s", reason(error))  # the call continues
            return
        self.last = value

    async def keep_on(self, calls: list[Call]) -> None:
        """Save the call every `save_s`."""
        while True:
            await asyncio.sleep(self.server.limits.save_s)
            if self.has_news(calls):
                await self.keep(calls)

    async def leave(self) -> None:
        """Raise MovedError when another connection resumes the call."""
        await self.moved.wait()
        raise MovedError

    async def read(self, websocket: WebSocket, calls: list[Call]) -> None:
        """Receive audio and requests until the client ends the call."""
        start, past = self.last.start, b""
        while True:
            message = await next_message(websocket, self.server)
            if isinstance(message, bytes):
                for call in calls:
                    await call.wait_for_room()  # can be cancelled, decoding cannot be undone
                if self.opus is None:
                    dtype = ENCODINGS[start.encoding]
                    samples, past = samples_of(past, message, dtype, start.channels)
                else:
                    samples = self.opus.decode(message)
                await append_channels(calls, self.server, samples, start.sample_rate)
                continue
            asked = messages.parsed(message)
            if isinstance(asked, End):
                self.warning = cut_off(past)
                break
            if not isinstance(asked, Commit):
                raise UserError("the call has started already")
            for call in calls:
                call.commit()
        for call in calls:
            call.finish()

    async def write(
        self, websocket: WebSocket, calls: list[Call], channel: int, finals: int
    ) -> None:
        """Send updates of a channel until its call has ended, except the first segments.

        Args:
            websocket: connection to the client.
            calls: call of each channel.
            channel: number of the channel.
            finals: number of segments that the client has already.
        """
        start, num_finals = self.last.start, 0
        of_channel = start.of_channel(channel)
        while (update := await calls[channel].next_update()) is not None:
            ack = self.last.received if self.server.store.survives else received(calls)
            self.reported = True
            recognized = round(update.seconds * start.sample_rate)
            for segment in update.segments:
                num_finals += 1
                if num_finals > finals:
                    final = messages.final(segment, ack, recognized, of_channel)
                    await send_text(websocket, final.model_dump_json(exclude_none=True))
            if not update.is_final:
                words = messages.timed(update.words)
                partial = Partial(
                    text=update.text, stable=update.stable_text, words=words, ack=ack,
                    recognized=recognized, **of_channel,
                )  # fmt: skip
                await send_text(websocket, partial.model_dump_json(exclude_none=True))

    async def end(self, websocket: WebSocket, calls: list[Call]) -> None:
        """Send the last message after the results of all channels; await the client's close."""
        ended = Ended(ack=received(calls), warning=self.warning or None)
        await send_text(websocket, ended.model_dump_json(exclude_none=True))
        self.free(calls)
        self.has_all = await closed(websocket)


def received(calls: list[Call]) -> int:
    """Return the number of samples that the sessions of all channels have."""
    return min(call.received for call in calls)
