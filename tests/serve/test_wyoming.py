"""Wyoming, by the client of Home Assistant's package."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from wyoming.asr import Transcribe, Transcript
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Describe, Info

from asrkit.errors import UserError
from asrkit.runtime import Recognizer
from asrkit.serve.converse import Finish
from asrkit.serve.dialects.wyoming import Wyoming
from asrkit.serve.server import Limits, Server
from tests.serve.offline import Offline, segment
from tests.serve.running import serving
from tests.serve.test_uploads import wait_until

Recordings = list[tuple[Path, np.ndarray]]
FORMAT = {"rate": 16000, "width": 2, "channels": 1}


class Running(NamedTuple):
    server: Server
    http: str  # address
    port: int  # Wyoming's


def is_closed(one: socket.socket, seconds: float) -> bool:
    """Whether the server closes a connection within this time; what it sends is read."""
    one.settimeout(seconds)
    try:
        while one.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def running(server: Server) -> Iterator[Running]:
    port = socket.create_server(("127.0.0.1", 0))
    with serving(server, port) as http:
        yield Running(server, http, port.getsockname()[1])


@pytest.fixture(scope="module")
def place(served: Recognizer) -> Iterator[Running]:
    yield from running(Server({"small-en-alnum": served}, Limits(streams=10, silence_s=5)))


def chunks(data: bytes, form: dict[str, int] = FORMAT) -> Iterator[Event]:
    """The events that Home Assistant sends for a recording."""
    yield AudioStart(**form).event()
    for at in range(0, len(data), 2048):
        yield AudioChunk(**form, audio=data[at : at + 2048]).event()
    yield AudioStop().event()


async def talk(port: int, *recordings: list[Event]) -> list[list[Event]]:
    """The answers to recordings on one connection, each up to its last one."""
    found = []
    async with AsyncTcpClient("127.0.0.1", port, read_timeout=30) as client:
        for events in recordings:
            with suppress(ConnectionError):  # a refusal may come before the last event
                for event in events:
                    await client.write_event(event)
            answers: list[Event] = []
            while not answers or answers[-1].type not in ("transcript", "error"):
                answer = await client.read_event()
                assert answer is not None
                answers.append(answer)
            found.append(answers)
    return found


def answers(port: int, *events: Event) -> list[Event]:
    return asyncio.run(talk(port, [*events]))[0]


def test_recordings_on_a_connection(
    place: Running, served: Recognizer, recordings: Recordings
) -> None:
    """The text is that of `transcribe`."""
    events = [
        [Transcribe(language="en").event(), *chunks(samples.tobytes())]
        for _, samples in recordings[:3]
    ]
    told = asyncio.run(talk(place.port, *events))
    texts = [Transcript.from_event(each).text for (each,) in told]
    assert texts == [served.transcribe(path).text for path, _ in recordings[:3]]
    assert len({*texts}) == 3  # the control
    assert told[0][0].data.keys() == {"text", "language"}


def test_what_is_served(place: Running) -> None:
    async def ask() -> Any:
        async with AsyncTcpClient("127.0.0.1", place.port, read_timeout=10) as client:
            await client.write_event(Event("of-tomorrow", {"a": 1}, b"payload"))
            await client.write_event(Describe().event())
            return await client.read_event()

    (program,) = Info.from_event(asyncio.run(ask())).asr
    assert (program.name, program.installed) == ("asrkit", True)
    (model,) = program.models
    assert (model.name, model.languages, model.installed) == ("small-en-alnum", ["en"], True)


AUDIO = [("audio-start", FORMAT), ("audio-chunk", FORMAT)]
REFUSED: list[tuple[list[tuple[str, dict[str, Any]]], str]] = [
    ([("transcribe", {"name": "/etc/passwd"}), *AUDIO], "is not served"),
    ([("audio-start", FORMAT | {"width": 4})], "audio-start: width"),
    ([("audio-start", FORMAT | {"rate": 768_001})], "audio-start: rate"),
    ([("audio-start", FORMAT), ("audio-chunk", FORMAT | {"rate": 8000})], "another format"),
    ([("audio-start", FORMAT), ("transcribe", {})], "transcribe must come before"),
    ([("audio-stop", {})], "audio-stop without audio"),
    ([("transcribe", {"transcript_names": ["a"] * 1001}), *AUDIO], "at most 1000 hotwords"),
    ([("transcribe", {"transcript_names": "a"})], "transcribe: transcript_names"),
]


@pytest.mark.parametrize(("events", "why"), REFUSED)
def test_refusals(server: Server, events: list[tuple[str, dict[str, Any]]], why: str) -> None:
    with pytest.raises(UserError, match=why):
        Offline(Wyoming(server.models), server).read(*(Event(*each, b"\0\0") for each in events))


def test_events(server: Server) -> None:
    """Options hold for the next recording only; channels are mixed."""
    talk = Offline(Wyoming(server.models), server)
    asked = Transcribe(
        name="small-en-alnum", language="de-DE", context={"a": 1}, vad_sensitivity="relaxed",
        transcript_names=["oh seven", "☃"], transcript_terms=["eleven"],
    )  # fmt: skip
    form = FORMAT | {"channels": 2}
    assert talk.read(asked.event(), Event("of-tomorrow")) == []
    assert talk.read(Event("audio-start", form)) == []
    assert talk.begun[0].wish.phrases == ["oh seven", "☃", "eleven"]
    assert talk.samples(*(Event("audio-chunk", form, data) for data in (b"\0\1\0", b"\3x"))) == [
        [], [512 / 32768],
    ]  # fmt: skip
    assert talk.write(live="a b", stable="a") == talk.write(segment("a b")) == []
    assert talk.read(AudioStop().event()) == [Finish(is_last=False)]
    (text,) = talk.dialect.ended()
    assert text.data["text"] == "a b"
    for each in ("'☃'", "language 'de-DE'", "no effect here: context, vad_sensitivity", "1 bytes"):
        assert each in text.data["warning"]
    talk.read(*chunks(b"\0\0"))
    assert next(each.data for each in talk.dialect.ended()) == {"text": "", "language": "en"}
    assert talk.begun[1].wish.model is None


BAD = [
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"[" * 3000 + b"\n", b"{}\n", b"\xff\n",
    b'{"type": "describe", "data_length": 3}\n[1]', b'{"type": "describe", "data": 7}\n',
    b'{"type": "ping", "payload_length": 1e400}\n', b'{"type": "' + b"x" * (1 << 18) + b'"}\n',
]  # fmt: skip


@pytest.mark.parametrize("data", BAD)
def test_bytes_that_are_no_event_end_the_connection(place: Running, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", place.port), timeout=10) as client:
        client.sendall(data)
        answer = b""
        with suppress(ConnectionResetError):  # the rest of a long line is not read
            while part := client.recv(1 << 16):
                answer += part
    assert json.loads(answer.partition(b"\n")[0])["type"] == "error"


async def beside_another(place: Running) -> list[list[Event]]:
    """The answers to a recording while another connection has one."""
    begin = [Event("audio-start", FORMAT), Event("audio-chunk", FORMAT, b"\0\0" * 16000)]
    async with AsyncTcpClient("127.0.0.1", place.port) as one:
        for event in begin:
            await one.write_event(event)
        while not place.server.streams:
            await asyncio.sleep(0.01)
        return await talk(place.port, begin)


def test_what_comes_late_or_not_at_all(served: Recognizer) -> None:
    """A connection that is silent, and one whose event stops, are ended; a full server says so."""
    limits = Limits(streams=1, header_s=0.5, silence_s=1.0)
    for place in running(Server({"m": served}, limits)):
        for data in (b"", b'{"type": "describe"}\n{"type": "pi', b'{"payload_length": 9'):
            with socket.create_connection(("127.0.0.1", place.port)) as client:
                client.sendall(data)
                assert is_closed(client, 4.0)
        (refused,) = asyncio.run(beside_another(place))
        assert Error.from_event(refused[-1]).code == "streams"


def test_a_client_that_leaves_frees_its_place(place: Running) -> None:
    """Also one that leaves while the network still has its audio."""
    for end in (b"", b'{"type": "audio-stop"}\n'):
        with socket.create_connection(("127.0.0.1", place.port)) as client:
            form = json.dumps(FORMAT).encode()
            client.sendall(b'{"type": "audio-start", "data": %s}\n' % form)
            chunk = b'{"type": "audio-chunk", "data": %s, "payload_length": 320000}\n' % form
            client.sendall(chunk + bytes(320_000) + end)
            wait_until(lambda: place.server.streams == 1)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
        wait_until(lambda: not place.server.streams, 20.0)
