"""asrkit's own protocol, /v1/stream: a start message, binary audio, partial and final texts.

Messages are those of `asrkit.serve.messages`. A call outlives its connection: the client comes back
with a resume message, and goes on with the first sample that has not come.
"""

import asyncio
import secrets
from contextlib import ExitStack

from starlette.websockets import WebSocket, WebSocketDisconnect

from asrkit.errors import UserError
from asrkit.serve import messages
from asrkit.serve.calls import Call, News
from asrkit.serve.messages import (
    ENCODINGS,
    Commit,
    End,
    Ended,
    Error,
    Final,
    Partial,
    Resume,
    Start,
    Started,
)
from asrkit.serve.server import RefusedError, Server
from asrkit.serve.sockets import both_ways, next_message, put, samples_of, telling


def error(reason: str, message: str) -> str:
    return Error(reason=reason, message=message).model_dump_json()


async def stream(websocket: WebSocket, server: Server) -> None:
    """One connection: a call from its first message to its last, or a part of one."""
    async with telling(websocket, server, error):
        first = await first_message(websocket, server)
        line = resumed(first, server) if isinstance(first, Resume) else await Line.of(first, server)
        finals = first.finals if isinstance(first, Resume) else 0
        await line.connect(websocket, finals)


async def first_message(websocket: WebSocket, server: Server) -> Start | Resume:
    message = await next_message(websocket, server)
    first = messages.parsed(message) if isinstance(message, str) else None
    if not isinstance(first, Start | Resume):
        raise UserError("the first message has to be a start or a resume")
    return first


def resumed(asked: Resume, server: Server) -> "Line":
    """The call that a client comes back to.

    Raises:
        RefusedError: if there is none, or with another token.
    """
    line: Line | None = server.lines.get(asked.id)
    if line is None or not secrets.compare_digest(asked.token.encode(), line.token.encode()):
        raise RefusedError(404, "unknown", "there is no such call, or no more")
    return line


class MovedError(RefusedError):
    """The call goes on by another connection."""

    def __init__(self) -> None:
        super().__init__(409, "moved", "the call goes on by another connection")


class Line:
    """A call, and what its next connection has to know.

    Args:
        start: the client's first message.
        server: whose call it is.
        context: of the recogniser.
        stack: ends the call.
    """

    def __init__(self, start: Start, server: Server, context: str, stack: ExitStack) -> None:
        self.start, self.server, self.context, self.stack = start, server, context, stack
        self.call: Call
        self.id, self.token = secrets.token_urlsafe(12), secrets.token_urlsafe(24)
        self.received, self.commits = 0, 0  # samples, and requests to end a segment
        self.finals: list[Final] = []
        self.taken = asyncio.Event()  # set when another connection takes over from the last one
        self.connected = asyncio.Lock()  # held by a connection until it has left
        self.waiting: asyncio.TimerHandle | None = None  # ends a call that nobody comes back to

    @classmethod
    async def of(cls, start: Start, server: Server) -> "Line":
        """A new call."""
        recognizer = await server.recognizer_for(start.hotwords, start.pause_ms)
        line = cls(start, server, recognizer.context, ExitStack())
        line.call = line.stack.enter_context(server.call(start.sample_rate, recognizer))
        server.lines[line.id] = line
        return line

    def park(self) -> None:
        """Wait for the client to come back, for a while."""
        loop = asyncio.get_running_loop()
        self.waiting = loop.call_later(self.server.limits.resume_s, self.close)

    def close(self) -> None:
        self.server.lines.pop(self.id, None)
        self.stack.close()

    async def connect(self, websocket: WebSocket, finals: int) -> None:
        """Go on by this connection, whose client has so many final segments."""
        self.taken.set()
        taken = self.taken = asyncio.Event()
        async with self.connected:
            if self.waiting is not None:
                self.waiting.cancel()
            try:
                await both_ways(leave(taken), self.read(websocket), self.write(websocket, finals))
            except BaseException as error:
                if taken.is_set():  # the call goes on by another connection, whatever came first
                    raise MovedError from error
                if isinstance(error, WebSocketDisconnect):
                    self.park()
                else:
                    self.close()
                raise
            self.close()

    async def read(self, websocket: WebSocket) -> None:
        """Audio and requests of the client, until it ends the call."""
        past, dtype = b"", ENCODINGS[self.start.encoding]
        while True:
            message = await next_message(websocket, self.server)
            if isinstance(message, bytes):
                samples, past = samples_of(past, message, dtype)
                await put(self.call, self.server, samples, self.start.sample_rate)
                self.received += len(samples)  # not before: what waits may be cancelled
                continue
            asked = messages.parsed(message)
            if isinstance(asked, End):
                return self.call.end()
            if not isinstance(asked, Commit):
                raise UserError("the call has started already")
            self.commits += 1
            self.call.commit()

    async def write(self, websocket: WebSocket, finals: int) -> None:
        """What is new to the client, which has so many finals, until the call has ended."""
        started = Started(
            model=self.server.name, context=self.context, id=self.id, token=self.token,
            ack=self.received, commits=self.commits,
        )  # fmt: skip
        for message in (started, *self.finals[finals:]):
            await websocket.send_text(message.model_dump_json())
        ack = 0
        while (news := await self.call.news()) is not None:
            ack = round(news.seconds * self.start.sample_rate)
            new = [messages.final(each, ack) for each in news.segments]
            self.finals += new  # before they are sent, which may fail
            for message in (*new, *partial(news, ack)):
                await websocket.send_text(message.model_dump_json())
        await websocket.send_text(Ended(ack=ack or self.received).model_dump_json())


async def leave(taken: asyncio.Event) -> None:
    """Raises MovedError when the event is set."""
    await taken.wait()
    raise MovedError


def partial(news: News, ack: int) -> list[Partial]:
    """The open segment, if there may be one."""
    if news.is_final:
        return []
    words = messages.timed(news.words)
    return [Partial(text=news.text, stable=news.stable_text, words=words, ack=ack)]
