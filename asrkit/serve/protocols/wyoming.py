"""Wyoming, the protocol of Home Assistant's voice services: JSON lines and audio over TCP.

An event is a line with a JSON object, then `data_length` bytes of JSON and `payload_length` bytes
of audio. A client sends audio-start, audio-chunk and audio-stop. It receives the stable text as
transcript-chunk events, then the whole text as transcript.
"""

import asyncio
import json
import socket
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import numpy as np
from anyio import fail_after
from pydantic import BaseModel, Field

from asrkit.audio import Mixer
from asrkit.audio.samples import MAX_RATE, MIN_RATE
from asrkit.errors import UserError, shown
from asrkit.serve.admission import CLIENT, client_of
from asrkit.serve.calls import Call
from asrkit.serve.logs import log
from asrkit.serve.protocols.parsing import checked, object_of
from asrkit.serve.protocols.samples import append_samples, cut_off, samples_of
from asrkit.serve.protocols.stable_text import StableText
from asrkit.serve.server import Model, RefusedError, Server
from asrkit.version import __version__

PROGRAM = "asrkit"
S16 = np.dtype("<i2")
LINE_BYTES = 1 << 16  # longest line

Size = Annotated[int, Field(ge=0)] | None
Name = Annotated[str, Field(max_length=200)]
Value = TypeVar("Value", bound=BaseModel)


class Header(BaseModel):
    """The line of an event."""

    type: Annotated[str, Field(max_length=100)]
    data: dict[str, Any] | None = None
    data_length: Size = None
    payload_length: Size = None


class Format(BaseModel):
    """The data of audio-start and audio-chunk."""

    rate: Annotated[int, Field(ge=MIN_RATE, le=MAX_RATE)]
    width: Literal[2]
    """Bytes of a value: samples have 16 bits."""
    channels: Annotated[int, Field(ge=1, le=8)]
    """Interleaved channels, which are mixed."""


class Transcribe(BaseModel):
    """The options for the audio that follows."""

    name: Name | None = None
    language: Name | None = None
    transcript_names: list[str] | None = None
    transcript_terms: list[str] | None = None
    context: Any = None
    vad_sensitivity: Any = None


class SelectProgram(BaseModel):
    name: Literal["asrkit"]


class Event(NamedTuple):
    kind: str
    data: dict[str, Any]
    payload: bytes = b""

    def checked(self, form: type[Value]) -> Value:
        """Return the data.

        Raises:
            UserError: for the first invalid field.
        """
        return checked(form.model_validate, self.data, f"{self.kind}: ")


@asynccontextmanager
async def wyoming(server: Server, port: socket.socket) -> AsyncIterator[None]:
    """A context manager in which Wyoming's clients are served on a bound socket."""
    tasks: set[asyncio.Task[None] | None] = set()

    async def handle(reader: StreamReader, writer: StreamWriter) -> None:
        tasks.add(task := asyncio.current_task())
        CLIENT.set(client_of(writer.get_extra_info("peername")[0]))
        started = time.monotonic()
        try:
            await converse(reader, writer, server)
        finally:
            tasks.discard(task)
            writer.close()
            log("wyoming", seconds=round(time.monotonic() - started, 3))

    listener = await asyncio.start_server(handle, sock=port, limit=LINE_BYTES)
    try:
        yield
    finally:
        listener.close()
        for task in tasks:
            if task is not None:
                task.cancel()
        await asyncio.gather(*filter(None, tasks), return_exceptions=True)


async def converse(reader: StreamReader, writer: StreamWriter, server: Server) -> None:
    """Serve a connection: any number of recordings, one after another."""
    client = Client(reader, writer, server)
    try:
        while (event := await client.next_event()) is not None:
            await client.follow(event)
    except UserError as raised:
        reason, text = server.note_dropped(raised)
        await client.tell("error", text=text, code=reason)
    except (asyncio.CancelledError, asyncio.IncompleteReadError, OSError) as error:
        server.figures.dropped.labels("disconnect").inc()
        if isinstance(error, asyncio.CancelledError):
            raise


class Client:
    """A connection and the options of its next recording.

    Args:
        reader: reader of the client's bytes.
        writer: writer to the client.
        server: server of the calls.
    """

    def __init__(self, reader: StreamReader, writer: StreamWriter, server: Server) -> None:
        self.reader, self.writer, self.server = reader, writer, server
        self.asked = Transcribe()
        self.is_new = True  # whether the client has sent no event yet

    async def tell(self, kind: str, **data: object) -> None:
        self.writer.write(written(Event(kind, data)))
        await self.writer.drain()

    async def next_event(self) -> Event | None:
        """Receive the client's next event; None at the end of the connection.

        Raises:
            IncompleteReadError: if the connection ends within an event.
            UserError: for bytes that are not an event.
        """
        await asyncio.sleep(0)  # `read_event` does not let others run while events wait
        limits = self.server.limits
        seconds = min(limits.header_s, limits.silence_s) if self.is_new else limits.silence_s
        try:
            with fail_after(seconds):
                event = await read_event(self.reader, 1024 * limits.message_kb)
        except TimeoutError:
            raise RefusedError(408, "silence", f"no event for {seconds:g} s") from None
        self.is_new = False
        return event

    async def follow(self, event: Event) -> None:
        """Handle an event outside a recording; events of other types have no effect."""
        if event.kind in ("audio-start", "audio-chunk"):
            await self.recording(event)
            self.asked = Transcribe()
        elif event.kind == "transcribe":
            self.asked = event.checked(Transcribe)
        elif event.kind == "audio-stop":
            raise UserError("audio-stop without audio: send audio-start first")
        else:
            await self.answer(event)

    async def answer(self, event: Event) -> None:
        """Answer an event that may come at any time."""
        if event.kind == "describe":
            await self.tell("info", **info(self.server))
        elif event.kind == "ping":
            text = event.data.get("text")
            await self.tell("pong", text=text if isinstance(text, str) else None)
        elif event.kind == "select-program":
            event.checked(SelectProgram)

    async def recording(self, event: Event) -> None:
        """Serve a recording from its first event to its transcript."""
        server, asked = self.server, self.asked
        form = event.checked(Format)
        model = server.model(asked.name, asked.language or "")
        phrases = [*(asked.transcript_names or []), *(asked.transcript_terms or [])]
        phrases, left_out = await server.preferred(model, phrases)
        recognizer = await server.recognizer_for(model, phrases)
        warnings = [left_out, model.other_language(asked.language or ""), no_effect(asked)]
        with server.call(model, form.rate, recognizer) as call:
            await self.tell("transcript-start", **language_of(model))
            text = StableText()
            warnings += await self.receive(call, form, event, text)
            while (update := await call.next_update()) is not None:
                await self.chunk(text.grown(update))
        warning = "; ".join(filter(None, warnings))
        more = {"warning": warning} if warning else {}
        await self.tell("transcript", text=text.text, **language_of(model), **more)
        await self.tell("transcript-stop")

    async def receive(self, call: Call, form: Format, event: Event, text: StableText) -> list[str]:
        """Append audio to a call until audio-stop, and return warnings about the audio."""
        past, mixer = b"", Mixer("the audio")
        while event.kind != "audio-stop":
            if event.kind == "audio-chunk":
                if event.checked(Format) != form:
                    raise UserError("audio-chunk has another format than the audio before it")
                samples, past = samples_of(past, event.payload, S16, form.channels)
                await append_samples(call, self.server, mixer(samples), form.rate)
            elif event.kind == "transcribe":
                raise UserError("transcribe must come before audio-start or after audio-stop")
            else:
                await self.answer(event)
            if (update := call.waiting_update()) is not None:
                await self.chunk(text.grown(update))
            if (following := await self.next_event()) is None:
                raise asyncio.IncompleteReadError(b"", None)
            event = following
        call.finish()
        return [cut_off(past), *(f"the audio {each}" for each in mixer.problems())]

    async def chunk(self, text: str) -> None:
        if text:
            await self.tell("transcript-chunk", text=text)


async def read_event(reader: StreamReader, most: int) -> Event | None:
    """Read an event; None at the end of the connection.

    Args:
        reader: reader of the client's bytes.
        most: largest number of bytes of the data, and of the payload.

    Raises:
        IncompleteReadError: if the connection ends within an event.
        UserError: for bytes that are not an event.
    """
    try:
        line = await reader.readline()
    except ValueError:
        text = f"the line of an event must have at most {LINE_BYTES} bytes"
        raise UserError(text) from None
    if not line.endswith(b"\n"):
        if line:
            raise asyncio.IncompleteReadError(line, None)
        return None
    header = checked(Header.model_validate, object_of(line))
    for name in ("data_length", "payload_length"):
        if (size := getattr(header, name) or 0) > most:
            raise UserError(f"{name} must be at most {most}, got {shown(size)}")
    data = dict(header.data or {})
    if header.data_length:
        data |= object_of(await reader.readexactly(header.data_length))
    return Event(header.type, data, await reader.readexactly(header.payload_length or 0))


def written(event: Event) -> bytes:
    """Return the bytes of an event."""
    data = json.dumps(event.data, ensure_ascii=False).encode()
    head = {"type": event.kind, "version": __version__, "data_length": len(data)}
    return json.dumps(head).encode() + b"\n" + data


def no_effect(asked: Transcribe) -> str:
    """Return the warning about options that have no effect, or ""."""
    given = [each for each in ("context", "vad_sensitivity") if getattr(asked, each) is not None]
    return f"no effect here: {', '.join(given)}" if given else ""


def language_of(model: Model) -> dict[str, str]:
    """Return the language of a model's texts, if the model states one."""
    language = model.recognizer.language
    return {"language": language} if language else {}


def info(server: Server) -> dict[str, Any]:
    """Return the description of the server's models."""
    about = {
        "attribution": {"name": PROGRAM, "url": ""}, "installed": True, "version": __version__,
    }  # fmt: skip
    models = [
        about
        | {
            "name": name,
            "description": f"{name}, {model.recognizer.context}",
            "languages": [*model.recognizer.languages],
        }
        for name, model in server.models.items()
    ]
    program = about | {
        "name": PROGRAM, "description": "streaming speech recognition", "models": models,
        "supports_transcript_streaming": True, "requires_external_vad": True,
    }  # fmt: skip
    others = ("tts", "handle", "intent", "wake", "mic", "snd")
    return {"asr": [program], **{name: [] for name in others}}
