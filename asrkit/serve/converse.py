"""A conversation over a connection. A dialect says what messages mean; all else is here.

A dialect is a protocol without connections and tasks: it turns a message into items, and an update
of a call into messages. The conversation has the tasks, the limits, the calls and the errors.
"""

import asyncio
import json
import math
from collections.abc import Coroutine, Iterable
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from anyio import move_on_after
from starlette.websockets import WebSocket, WebSocketDisconnect

from asrkit.errors import UserError, shown
from asrkit.serve.calls import Call, CallUpdate, SavedCall
from asrkit.serve.server import Grant, RefusedError, Server, Wish

TRY_AGAIN_LATER, POLICY_VIOLATION = 1013, 1008  # close codes: IANA's registry for RFC 6455
SEND_S = 60.0  # time in which a client must take a message
CLOSE_S = 0.25  # time for a client to close after the last message
TURN = 16  # messages after which a busy client lets others run

Message: TypeAlias = Any  # str or bytes of a WebSocket, or an event of another protocol


class Begin(NamedTuple):
    """An item: begin calls, one for each channel, in place of the earlier ones."""

    wish: Wish
    sample_rate: int  # Hz
    channels: int = 1  # number of calls
    saved: tuple[SavedCall, ...] = ()  # state of each call, from which it continues
    token: str | None = None  # from within a message; None if the connection has it already
    settings: Any = None  # anything that `Dialect.begun` needs


class Append(NamedTuple):
    """An item: samples (n,) of a channel, or (n, channels) of all."""

    samples: np.ndarray
    channel: int | None = None


class Commit(NamedTuple):
    """An item: end the open segments of all channels."""


class Finish(NamedTuple):
    """An item: finish the calls, and wait for their ends; the last ones end the conversation."""

    is_last: bool = True


class Dialect:
    """A protocol: functions from messages to items and from updates to messages.

    Any other item is a message, which is sent at once.
    """

    def open(self) -> Iterable[Any]:
        """Return the items of a new connection."""
        return ()

    def read(self, message: Message) -> Iterable[Any]:
        """Return the items of a message.

        Raises:
            UserError: for an invalid message.
        """
        raise NotImplementedError

    def begun(self, begin: Begin, grant: Grant) -> Iterable[Message]:
        """Return the messages that say that calls have begun."""
        return ()

    def write(self, channel: int, update: CallUpdate) -> Iterable[Message]:
        """Return the messages of an update."""
        raise NotImplementedError

    def ended(self) -> Iterable[Message]:
        """Return the messages after the last updates of the calls."""
        return ()

    def error(self, reason: str, text: str) -> Message:
        """Return the message about an error that ends the conversation."""
        raise NotImplementedError

    def wrong(self, error: UserError) -> Message | None:
        """Return the answer to an invalid message; None: it ends the conversation."""
        return None


class LeftError(Exception):
    """The error of a connection that the client has closed, or whose client does not read."""


class Line(Protocol):
    """A connection to a client."""

    async def receive(self) -> Message:
        """Receive a message; LeftError if the client has left."""

    async def send(self, message: Message) -> None:
        """Send a message; LeftError if the client has left."""

    async def close(self, code: int, why: str) -> None:
        """Close the connection."""


class WebSocketLine:
    """A WebSocket as a line; objects are sent as JSON."""

    def __init__(self, websocket: WebSocket) -> None:
        self.websocket = websocket

    async def receive(self) -> Message:
        message = await self.websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise LeftError
        data = message.get("bytes")
        return message["text"] if data is None else data

    async def send(self, message: Message) -> None:
        text = message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)
        try:
            await self.websocket.send_text(text)
        except (WebSocketDisconnect, RuntimeError) as error:
            raise LeftError from error  # another task may have noticed that the client has left

    async def close(self, code: int, why: str) -> None:
        with suppress(WebSocketDisconnect, RuntimeError):  # the client may have left
            await self.websocket.close(code, why)

    async def is_satisfied(self) -> bool:
        """Wait a moment for the client's close; return whether its code is 1000.

        A client that closes so has all messages.
        """
        with move_on_after(CLOSE_S), suppress(RuntimeError):
            while (message := await self.websocket.receive())["type"] != "websocket.disconnect":
                pass
            return bool(message.get("code") == 1000)
        return False


async def converse(conversation: "Conversation") -> None:
    """Serve a connection to its end; errors become messages."""
    line, server = conversation.line, conversation.server
    code, why = 1000, ""
    try:
        with conversation.stack:
            await conversation.run()
    except LeftError as left:
        left.__traceback__ = None  # `conversation.end` holds the error: a cycle, see `run`
        if conversation.calls:
            server.figures.dropped.labels("disconnect").inc()
        return
    except UserError as raised:
        error = server.note_dropped(raised)
        code = TRY_AGAIN_LATER if error.reason == "streams" else POLICY_VIOLATION
        why = shown(str(error), 100)[1:-1]
        with suppress(LeftError), move_on_after(SEND_S):
            await line.send(conversation.dialect.error(error.reason, str(error)))
    await line.close(code, why)


class Conversation:
    """A connection with its calls.

    Args:
        line: connection to the client.
        server: server of the calls.
        dialect: protocol of the connection.
    """

    def __init__(self, line: Line, server: Server, dialect: Dialect) -> None:
        self.line, self.server, self.dialect = line, server, dialect
        self.stack = ExitStack()  # ends the calls
        self.calls: list[Call] = []
        self.writers: list[asyncio.Task[None]] = []  # of the calls, and `close`
        self.tasks: set[asyncio.Task[None]] = set()  # these, the reading and others
        self.count, self.is_last = 0, True  # messages received; whether no other calls follow
        self.waiting_since = math.inf  # time of the loop at which the wait for a message began
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Read and write until the last call has ended, or until one of the tasks fails."""
        self.start(self.watch())
        self.start(self.read())
        try:
            await self.end
        finally:
            await stop(self.tasks)
            self.writers = []  # their errors have frames that hold this object: a cycle

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run work beside the reading; its error ends the conversation."""

        def note(task: "asyncio.Task[None]") -> None:
            self.tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self.fail(error)

        task = asyncio.ensure_future(work)
        task.add_done_callback(note)
        self.tasks.add(task)
        return task

    def fail(self, error: BaseException) -> None:
        """End the conversation because of an error, unless it has ended."""
        if not self.end.done():
            self.end.set_exception(error)

    async def read(self) -> None:
        """Receive messages until the conversation ends."""
        for item in self.dialect.open():
            await self.do(item)
        while not self.end.done():
            for call in self.calls:  # what a message holds is then appended to all calls, or none
                await call.wait_for_room()
            message = await self.receive()
            try:
                for item in self.dialect.read(message):
                    if isinstance(item, Append):
                        self.append(item)
                    else:
                        await self.do(item)
            except RefusedError:
                raise
            except UserError as error:
                if (answer := self.dialect.wrong(error)) is None:
                    raise
                await self.say([answer])

    async def receive(self) -> Message:
        """Receive the next message.

        Raises:
            LeftError: if the client has left.
        """
        self.count += 1
        if self.count % TURN == 0:
            await asyncio.sleep(0)  # a line does not let others run while messages wait
        self.waiting_since = self.end.get_loop().time()
        message = await self.line.receive()
        self.waiting_since = math.inf
        return message

    async def watch(self) -> None:
        """Wait until the client sends no message for too long; the first one has less time.

        Raises:
            RefusedError: then.
        """
        limits, now = self.server.limits, self.end.get_loop().time
        seconds = min(limits.header_s, limits.silence_s)
        while (left := self.waiting_since + seconds - now()) > 0:
            await asyncio.sleep(min(left, seconds))
            seconds = limits.silence_s if self.count > 1 else seconds
        raise RefusedError(408, "silence", f"no message for {seconds:g} s")

    async def do(self, item: Any) -> None:
        """Carry out an item."""
        match item:
            case Commit():
                for call in self.calls:
                    call.commit()
            case Begin():
                await self.begin(item)
            case Finish():
                await self.finish(item.is_last)
            case _:
                await self.say([item])

    async def say(self, messages: Iterable[Message]) -> None:
        for message in messages:
            timer = self.end.get_loop().call_later(SEND_S, self.fail, LeftError())
            try:
                await self.line.send(message)
            finally:
                timer.cancel()

    def append(self, item: Append) -> None:
        """Append samples, after `Call.wait_for_room`.

        Raises:
            RefusedError: if the call is too long.
        """
        calls = self.calls if item.channel is None else [self.calls[item.channel]]
        samples = item.samples
        longest = self.server.limits.call_s
        if calls[0].seconds + len(samples) / calls[0].sample_rate > longest:
            raise RefusedError(413, "length", f"a call may last {longest:g} s: start another one")
        channels = [samples] if len(calls) == 1 else np.ascontiguousarray(samples.T)
        for call, own in zip(calls, channels, strict=True):
            call.append(own)

    async def begin(self, item: Begin) -> None:
        """Begin calls in place of the earlier ones, and the tasks that write their updates.

        Raises:
            UserError: for a wish that cannot be granted; the earlier calls then continue, unless
                the server is full.
        """
        if item.token is not None and not self.server.admits(item.token):
            raise RefusedError(401, "token", "the parameter token is missing or wrong")
        grant = await self.server.grant(item.wish)
        await self.end_calls()
        self.calls = [
            self.stack.enter_context(
                self.server.call(grant.model, item.sample_rate, grant.recognizer, saved)
            )
            for saved in item.saved or [None] * item.channels
        ]
        await self.admitted(item)
        await self.say(self.dialect.begun(item, grant))
        writers = [self.start(self.write(*each)) for each in enumerate(self.calls)]
        self.writers = [*writers, self.start(self.close(writers))]

    async def admitted(self, item: Begin) -> None:
        """Do what must be done before the client reads that its calls have begun."""

    async def write(self, channel: int, call: Call) -> None:
        """Send the updates of a call until it has ended."""
        while (update := await call.next_update()) is not None:
            await self.say(self.dialect.write(channel, update))

    async def close(self, writers: "list[asyncio.Task[None]]") -> None:
        """Send the last messages once all updates of the calls are written."""
        await asyncio.gather(*writers)
        await self.say(self.dialect.ended())
        if self.is_last:
            await self.conclude()

    async def conclude(self) -> None:
        """End the conversation, unless it has failed."""
        if not self.end.done():
            self.end.set_result(None)

    async def finish(self, is_last: bool) -> None:
        """Finish the calls, and wait until all that is left of them is written."""
        self.is_last = is_last
        for call in self.calls:
            call.finish()
        await asyncio.gather(*self.writers)
        if not is_last:
            await self.end_calls()

    async def end_calls(self) -> None:
        await stop(self.writers)
        self.stack.close()
        self.calls, self.writers = [], []


async def stop(tasks: "Iterable[asyncio.Future[Any]]") -> None:
    """Cancel tasks, and wait for their ends."""
    tasks = [*tasks]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
