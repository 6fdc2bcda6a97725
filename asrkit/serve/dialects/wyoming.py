"""Wyoming, the protocol of Home Assistant's voice services: JSON lines and audio over TCP.

A client sends audio-start, audio-chunk and audio-stop, and receives a transcript.
"""

import asyncio
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

from anyio import move_on_after
from pydantic import BaseModel
from wyoming.event import Event, async_read_event, async_write_event

from asrkit.errors import UserError, shown
from asrkit.serve.admission import CLIENT, client_of
from asrkit.serve.calls import CallUpdate
from asrkit.serve.converse import Append, Begin, Conversation, Dialect, Finish, LeftError, converse
from asrkit.serve.dialects.audio import SampleReader
from asrkit.serve.dialects.parsing import Name, Rate, checked, unused, without_effect
from asrkit.serve.server import Grant, Model, Server, Wish
from asrkit.version import __version__

LINE_BYTES = 1 << 16  # longest line
LINGER_S = 1.0  # of a closing connection


class Format(BaseModel):
    """The data of audio-start and audio-chunk."""

    rate: Rate
    width: Literal[2]
    """Bytes of a value: samples have 16 bits."""
    channels: Literal[1]


class Transcribe(BaseModel):
    """The options for the audio that follows."""

    name: Name | None = None
    language: Name | None = None


@asynccontextmanager
async def wyoming(server: Server, port: socket.socket) -> AsyncIterator[None]:
    """A context manager in which Wyoming's clients are served on a bound socket."""

    async def handle(reader: StreamReader, writer: StreamWriter) -> None:
        CLIENT.set(client_of(writer.get_extra_info("peername")[0]))
        line = EventLine(reader, writer, 1024 * server.limits.message_kb)
        try:
            await converse(Conversation(line, server, Wyoming(server.models)))
        finally:
            writer.close()

    listener = await asyncio.start_server(handle, sock=port, limit=LINE_BYTES)
    try:
        yield
    finally:
        listener.close()  # the end of the event loop cancels its connections


class EventLine:
    """A connection that carries events, whose parts are bounded.

    Args:
        reader: reader of the client's bytes.
        writer: writer to the client.
        most: largest number of bytes of the data, and of the payload.
    """

    def __init__(self, reader: StreamReader, writer: StreamWriter, most: int) -> None:
        self.reader, self.writer, self.most = reader, writer, most
        self.readline = reader.readline  # as the package's reader, with `readexactly`

    async def readexactly(self, size: object) -> bytes:
        if not isinstance(size, int) or size > self.most:
            raise UserError(f"a part of an event has at most {self.most} bytes, got {shown(size)}")
        return await self.reader.readexactly(size)

    async def receive(self) -> Event:
        event = None
        try:
            event = await async_read_event(self)  # type: ignore[arg-type]
        except (OSError, asyncio.IncompleteReadError) as error:
            raise LeftError from error
        except (AttributeError, KeyError, TypeError, RecursionError):
            pass  # of the package, for a line that is JSON, but not an event
        if event and isinstance(event.type, str) and isinstance(event.data, dict):
            return event
        if self.reader.at_eof():
            raise LeftError
        raise UserError("expected an event: a line with a JSON object that has a type")

    async def send(self, message: Event) -> None:
        try:
            await async_write_event(message, self.writer)
        except (OSError, RuntimeError) as error:  # uvloop's error for a closed connection
            raise LeftError from error

    async def close(self, code: int, why: str) -> None:
        """Close after a client that still sends has read the last event."""
        with suppress(OSError, RuntimeError), move_on_after(LINGER_S):
            self.writer.write_eof()
            while await self.reader.read(LINE_BYTES):
                pass
        self.writer.close()


class Wyoming(Dialect):
    """A connection with recordings, one after another.

    Args:
        models: models by the names that clients ask for.
    """

    grant: Grant  # of the current recording
    reader: SampleReader
    texts: list[str]

    def __init__(self, models: Mapping[str, Model]) -> None:
        self.models, self.asked, self.warning = models, Transcribe(), ""
        self.form: Format | None = None  # of the current recording

    def read(self, message: Event) -> Iterator[Any]:
        """Return the items of an event; events of other types have no effect."""
        kind, asked = message.type, self.asked
        if kind in ("audio-start", "audio-chunk"):
            form = checked(Format.model_validate, message.data, f"{kind}: ")
            if self.form is None:
                wish = Wish(asked.name, language=asked.language or "")
                yield Begin(wish, form.rate, settings=form)
            if form != self.form:
                raise UserError(f"{kind} has another format than the audio before it")
            if kind == "audio-chunk":
                yield Append(self.reader.read(message.payload or b""))
        elif kind == "audio-stop":
            if self.form is None:
                raise UserError("audio-stop without audio: send audio-start first")
            yield Finish(is_last=False)
        elif kind == "transcribe":
            if self.form is not None:
                raise UserError("transcribe must come before audio-start or after audio-stop")
            self.asked = checked(Transcribe.model_validate, message.data, f"{kind}: ")
            self.warning = without_effect(unused(message.data, self.asked))
        elif kind == "describe":
            yield info(self.models)

    def begun(self, begin: Begin, grant: Grant) -> tuple[()]:
        self.form, self.grant, self.reader = begin.settings, grant, SampleReader()
        self.texts = list[str]()
        return ()

    def write(self, channel: int, update: CallUpdate) -> tuple[()]:
        self.texts += [segment.text for segment in update.segments]
        return ()

    def ended(self) -> Iterator[Event]:
        data = {"text": " ".join(filter(None, self.texts))}
        if language := self.grant.recognizer.language:
            data["language"] = language
        warnings = filter(None, [*self.grant.warnings, self.warning, *self.reader.problems()])
        if warning := "; ".join(warnings):
            data["warning"] = warning
        self.form, self.asked, self.warning = None, Transcribe(), ""
        yield Event("transcript", data)

    def error(self, reason: str, text: str) -> Event:
        return Event("error", {"text": text, "code": reason})


def info(models: Mapping[str, Model]) -> Event:
    """Return the description of the server's models."""
    about: dict[str, Any] = {
        "attribution": {"name": "asrkit", "url": ""}, "installed": True, "version": __version__,
    }  # fmt: skip
    known = [
        {"name": name, "description": f"{name}, {model.recognizer.context}",
         "languages": [*model.recognizer.languages], **about}
        for name, model in models.items()
    ]  # fmt: skip
    program = {"name": "asrkit", "description": "streaming speech recognition", "models": known}
    return Event("info", {"asr": [program | about]})
