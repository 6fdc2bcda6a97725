"""Published clients of the protocols: their texts and times are those of `transcribe`."""

import asyncio
import base64
import hashlib
import io
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import soundfile
import soxr
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from wyoming.asr import Transcribe, Transcript
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.event import Event
from wyoming.info import Describe, Info

import asrkit
from asrkit.runtime import Recognizer
from asrkit.serve.dialects.audio import MU_LAW
from asrkit.serve.server import Limits, Server
from tests.conftest import PROJECT, skip
from tests.running import wait_until
from tests.serve.running import Recordings, call_of, serving, spans, spoken
from tests.serve.test_dialects import CONNECTED, STOP, media, start

try:
    from deepgram import DeepgramClient
    from deepgram.core.api_error import ApiError
    from deepgram.environment import DeepgramClientEnvironment
except ImportError:
    DEEPGRAM = False
else:
    DEEPGRAM = True

Message = dict[str, Any]
pytestmark = pytest.mark.usefixtures("collected")  # texts are nested deeply
NOVA = "the model 'nova-3' is not served: small-en-alnum is used"
ITEM = "conversation.item.input_audio_transcription"


@pytest.fixture(scope="module")
def port() -> Iterator[socket.socket]:
    """The socket of Wyoming."""
    with socket.create_server(("127.0.0.1", 0)) as port:
        yield port


@pytest.fixture(scope="module")
def address(server: Server, port: socket.socket) -> Iterator[str]:
    with serving(server, port) as address:
        yield address


def deepgram(address: str) -> "DeepgramClient":
    if not DEEPGRAM:
        skip("deepgram-sdk is not installed")
    web, live = f"http://{address}", f"ws://{address}"
    environment = DeepgramClientEnvironment(base=web, production=live, agent=live, agent_rest=web)
    return DeepgramClient(api_key="none", environment=environment)


def stream(address: str, samples: np.ndarray, first: int, **options: Any) -> list[Message]:
    """The messages of a stream at Deepgram's address; its `first` samples get the first one."""
    asked = {"model": "nova-3", "encoding": "linear16", "sample_rate": "16000", **options}
    with deepgram(address).listen.v1.connect(**asked) as connection:
        connection.send_keep_alive()
        for at in range(0, len(samples), 1600):
            connection.send_media(samples[at : at + 1600].tobytes())
            if at == first:  # interim results of later audio replace those that were not sent yet
                messages = [connection.recv()]
        connection.send_close_stream()
        return [json.loads(each.json()) for each in [*messages, *connection]]


def test_deepgram_live(address: str, served: Recognizer, recordings: Recordings) -> None:
    """Final results are the segments of `transcribe`; interim ones come before them."""
    quiet = np.zeros(24_000, np.int16)
    samples = np.concatenate([x for _, samples in recordings[:2] for x in (samples, quiet)])
    expected = served.transcribe(samples)
    found = stream(address, samples, 16_000, interim_results="true", vad_events="true")
    final = [each for each in found if each["type"] == "Results" and each["is_final"]]
    segments = [each for each in expected.segments if each.text]
    assert len(final) == len(segments) >= 2
    words = [w for each in final for w in each["channel"]["alternatives"][0]["words"]]
    assert [(w["word"], w["start"], w["end"]) for w in words] == spans(expected.words)
    edges = [(each["start"], each["start"] + each["duration"]) for each in final]
    assert np.allclose(edges, [(each.start, each.end) for each in segments], atol=2e-3)
    first, last = found[0], found[-1]
    assert not first["is_final"]
    assert first["metadata"]["warnings"] == [NOVA, "no effect here: vad_events"]
    assert last["sha256"] == hashlib.sha256(samples.tobytes()).hexdigest()
    assert (last["channels"], last["duration"]) == (1, round(len(samples) / 16000, 3))


def test_deepgram_file(address: str, served: Recognizer, recordings: Recordings) -> None:
    """Each channel is what it would be alone."""
    call, file = call_of(recordings, 1, 2), io.BytesIO()
    soundfile.write(file, call, 16000, format="wav")
    media, data = deepgram(address).listen.v1.media, file.getvalue()
    options: Any = {"model": "nova-3", "utterances": True, "punctuate": True}
    found = media.transcribe_file(request=data, multichannel=True, **options)
    for number, (channel, own) in enumerate(zip(found.results.channels, call.T, strict=True)):
        (best,), expected = channel.alternatives, served.transcribe(own)
        assert best.transcript == expected.text
        assert [(w.word, w.start, w.end) for w in best.words] == spans(expected.words)
        said = [each for each in found.results.utterances if each.channel == number]
        utterances = [(each.transcript, each.start, each.end) for each in said]
        assert utterances == spoken(expected.segments)
    assert (found.metadata.channels, found.metadata.sha256) == (2, hashlib.sha256(data).hexdigest())
    assert found.metadata.warnings == [NOVA, "no effect here: punctuate"]
    mixed = media.transcribe_file(request=data, **options)
    ((best,),) = (channel.alternatives for channel in mixed.results.channels)
    assert best.transcript == served.transcribe(call).text
    with pytest.raises(ApiError) as caught:
        media.transcribe_url(url="http://127.0.0.1/a.wav", model="nova-3")
    assert caught.value.status_code == 400
    assert caught.value.body["err_msg"].startswith("url: the server reads no other address")


@pytest.mark.parametrize(
    ("query", "body", "status", "code", "why"),
    [
        ("?encoding=linear16", b"no audio", 400, "INVALID_REQUEST", "the file"),
        ("?utterances=x", b"", 400, "INVALID_REQUEST", "utterances"),
        ("", [bytes(1_000_000)] * 3, 413, "TOO_LARGE", "at most 2 MB"),
    ],
)  # fmt: skip
def test_deepgram_files_that_cannot_be(
    address: str, query: str, body: bytes | list[bytes], status: int, code: str, why: str
) -> None:
    content = iter(body) if isinstance(body, list) else body
    answer = httpx.post(f"http://{address}/v1/listen{query}", content=content)
    assert (answer.status_code, answer.json()["err_code"]) == (status, code)
    assert why in answer.json()["err_msg"]


@pytest.mark.parametrize(
    ("example", "pause_ms"), [("pipecat_stt", None), ("livekit_stt", 600)]
)  # heavy packages, which no extra has
def test_pipelines_of_others(
    address: str, served: Recognizer, recordings: Recordings, example: str, pause_ms: int | None,
    tmp_path: Path,
) -> None:  # fmt: skip
    package = example.partition("_")[0]
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    source = (PROJECT / "docs" / "examples" / f"{example}.py").read_text(encoding="utf-8")
    program = tmp_path / "program.py"
    program.write_text(source.replace("127.0.0.1:8000", address), encoding="utf-8")
    endpointer = None if pause_ms is None else asrkit.Endpointer(pause_ms)
    own = served.with_decoding(served.decoding._replace(endpointer=endpointer))
    path, _ = recordings[0]
    done = subprocess.run(
        [sys.executable, str(program), str(path)], capture_output=True, text=True, timeout=120
    )
    expected = [each.text for each in own.transcribe(path).segments if each.text]
    assert done.stdout.splitlines() == expected, done.stderr[-2000:]


def test_openai_realtime(address: str, served: Recognizer, recordings: Recordings) -> None:
    """Parts that the client commits."""
    parts = [
        (soxr.resample(samples / 32768, 16000, 24000) * 32767).astype("<i2")
        for _, samples in recordings[:3]
    ]
    client, events = openai.OpenAI(base_url=f"http://{address}/v1", api_key="none"), list[Message]()
    with client.realtime.connect(extra_query={"intent": "transcription"}) as connection:
        session: Any = {"type": "transcription", "audio": {"input": {"turn_detection": None}}}
        connection.session.update(session=session)
        for part in parts:
            for start in range(0, len(part), 2400):
                audio = base64.encodebytes(part[start : start + 2400].tobytes()).decode()
                connection.input_audio_buffer.append(audio=audio)  # with line ends
            connection.input_audio_buffer.commit()
        while len(completed := [e for e in events if e["type"] == f"{ITEM}.completed"]) < 3:
            events.append(connection.recv().to_dict())
    alone = served.with_decoding(served.decoding._replace(endpointer=None))
    texts = [alone.transcribe(part, 24000).text for part in parts]
    assert [each["transcript"] for each in completed] == texts
    assert [each["type"] for each in events[:2]] == ["session.created", "session.updated"]
    items = [each for each in events if each["type"] == "input_audio_buffer.committed"]
    ids = [each["item_id"] for each in items]
    assert [each["previous_item_id"] for each in items] == [None, *ids[:-1]]
    assert len({each["event_id"] for each in events}) == len(events)


def vosk(address: str, config: Message | None, rate: int, data: bytes) -> list[Message]:
    """The replies that alphacep's test.py prints: it reads none after its config."""
    replies = []
    with connect(f"ws://{address}") as websocket:
        if config is not None:
            websocket.send(json.dumps({"config": config}))
        for at in range(0, len(data), 2 * rate // 5):
            websocket.send(data[at : at + 2 * rate // 5])
            replies.append(json.loads(websocket.recv(timeout=10)))
        websocket.send('{"eof" : 1}')
        replies.append(json.loads(websocket.recv(timeout=10)))
        with pytest.raises(ConnectionClosed):  # there is no reply beside these
            websocket.recv(timeout=10)
    return replies


def text_of(replies: list[Message]) -> str:
    return " ".join(each["text"] for each in replies if each.get("text"))


def test_vosk(address: str, served: Recognizer, recordings: Recordings) -> None:
    for (path, samples), config in zip(
        recordings[:2], ({"words": True}, {"phrase_list": ["seven"]}), strict=True
    ):
        replies = vosk(address, {"sample_rate": 16000, **config}, 16000, samples.tobytes())
        assert all(("partial" in each) != ("text" in each) for each in replies)
        expected = served.with_hotwords(config.get("phrase_list", [])).transcribe(path)
        assert text_of(replies) == expected.text
        words = [word for each in replies for word in each.get("result", [])]
        assert [(w["word"], w["start"], w["end"]) for w in words] == spans(expected.words)
    half = soxr.resample(recordings[2][1], 16000, 8000).astype("<i2")  # Vosk's default
    replies = vosk(address, None, 8000, half.tobytes())
    assert text_of(replies) == served.transcribe(half, 8000).text
    with connect(f"ws://{address}/vosk") as client:
        client.send('{"config": {"sample_rate": 16000}}')
        for path, samples in recordings[:3]:
            client.send(samples.tobytes())
            client.send('{"reset" : 1}')
            replies = [json.loads(client.recv(timeout=10)) for _ in range(2)]
            assert text_of(replies) == served.transcribe(path).text


def twilio(address: str, *messages: str, **headers: str) -> list[Message]:
    """The answers to messages as Twilio's documentation has them."""
    found = []
    with connect(f"ws://{address}/twilio", additional_headers=headers) as client:
        for message in messages:
            client.send(message)
        with suppress(ConnectionClosed):
            while True:
                found.append(json.loads(client.recv(timeout=20)))
    return found


def codes_of(samples: np.ndarray) -> np.ndarray:
    """A recording at 16 kHz as a telephone sends it."""
    narrow = soxr.resample(samples / 32768, 16000, 8000) * 32767
    return np.abs(MU_LAW[None].astype(int) - narrow[:, None]).argmin(axis=1).astype(np.uint8)


def test_twilio(address: str, served: Recognizer, recordings: Recordings) -> None:
    """Each track has the text and the times of its own audio."""
    tracks = {
        name: codes_of(recordings[number][1]) for number, name in enumerate(("inbound", "outbound"))
    }
    sent = [
        media(base64.b64encode(codes[at : at + 160]).decode(), track=track)
        for at in range(0, max(map(len, tracks.values())), 160)
        for track, codes in tracks.items()
        if at < len(codes)
    ]
    found = twilio(address, CONNECTED, start(*tracks), *sent, STOP)
    texts = [each for each in found if each["event"] == "transcript"]
    for track, codes in tracks.items():
        expected = served.transcribe(MU_LAW[codes], 8000)
        own = [each for each in texts if each["track"] == track and each["is_final"]]
        assert [each["text"] for each in own] == [s.text for s in expected.segments if s.text]
        words = [(w["text"], w["start"], w["end"]) for each in own for w in each["words"]]
        assert words == spans(expected.words)
    assert len({each["track"] for each in texts}) == 2  # the control
    assert found[-1] == {"event": "ended", "streamSid": "MZ"}
    assert any(not each["is_final"] for each in texts)


def test_twilios_token(served: Recognizer) -> None:
    """Its addresses have no query: the token is a parameter, or a header of another client."""
    server = Server({"m": served}, token="secret")
    with serving(server) as address:
        for parameters, headers, reason in (
            ({"token": "secret"}, {}, None), ({"token": "x"}, {}, "token"),
            ({}, {"Authorization": "Bearer secret"}, None),
        ):  # fmt: skip
            *_, last = twilio(address, CONNECTED, start("inbound", **parameters), STOP, **headers)
            assert last.get("reason") == reason
        server.limits = server.limits._replace(silence_s=0.2)
        assert twilio(address, CONNECTED)[-1]["reason"] == "silence"
        with pytest.raises(InvalidStatus):  # the control: other addresses ask at once
            connect(f"ws://{address}/vosk")


FORM = {"rate": 16000, "width": 2, "channels": 1}


def events_of(samples: np.ndarray) -> Iterator[Event]:
    """The events that Home Assistant sends for a recording."""
    yield Transcribe(language="en").event()
    yield AudioStart(**FORM).event()
    for at in range(0, len(samples), 1024):
        yield AudioChunk(**FORM, audio=samples[at : at + 1024].tobytes()).event()
    yield AudioStop().event()


async def talk(port: socket.socket, *requests: list[Event]) -> list[Event]:
    """The last answers to requests on one connection."""
    found = []
    async with AsyncTcpClient(*port.getsockname(), read_timeout=30) as client:
        for events in requests:
            for event in events:
                await client.write_event(event)
            answer = await client.read_event()
            assert answer is not None
            found.append(answer)
    return found


@pytest.mark.usefixtures("address")
def test_wyoming(port: socket.socket, served: Recognizer, recordings: Recordings) -> None:
    asked = [[*events_of(samples)] for _, samples in recordings[:3]]
    unknown = Event("of-tomorrow", {"a": 1}, b"payload")
    *texts, about = asyncio.run(talk(port, *asked, [unknown, Describe().event()]))
    expected = [served.transcribe(path).text for path, _ in recordings[:3]]
    assert [Transcript.from_event(each).text for each in texts] == expected
    assert len({*expected}) == 3  # the control
    assert texts[0].data.keys() == {"text", "language"}
    (program,) = Info.from_event(about).asr
    assert (program.name, program.installed) == ("asrkit", True)
    (model,) = program.models
    assert (model.name, model.languages, model.installed) == ("small-en-alnum", ["en"], True)


def answer_to(port: socket.socket, data: bytes) -> bytes:
    """What the server sends until it closes the connection."""
    answer = b""
    with socket.create_connection(port.getsockname(), timeout=30) as client:
        client.sendall(data)
        with suppress(ConnectionResetError):  # the rest of a long line is not read
            while part := client.recv(1 << 16):
                answer += part
    return answer


BAD = [
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"[" * 3000 + b"\n", b"{}\n", b"\xff\n",
    b'{"type": "describe", "data_length": 3}\n[1]', b'{"type": "describe", "data": 7}\n',
    b'{"type": "ping", "payload_length": 1e400}\n', b'{"type": "' + b"x" * (1 << 18) + b'"}\n',
]  # fmt: skip


@pytest.mark.parametrize("data", BAD)
@pytest.mark.usefixtures("address")
def test_bytes_that_are_no_event_end_the_connection(port: socket.socket, data: bytes) -> None:
    assert json.loads(answer_to(port, data).partition(b"\n")[0])["type"] == "error"


def test_what_comes_late_or_not_at_all(served: Recognizer) -> None:
    """A connection that is silent, and one whose event stops, are ended."""
    server = Server({"m": served}, Limits(header_s=0.2, silence_s=0.5))
    port = socket.create_server(("127.0.0.1", 0))
    with serving(server, port):
        for data in (b"", b'{"type": "describe"}\n{"type": "pi', b'{"payload_length": 9'):
            assert b'"code": "silence"' in answer_to(port, data)


@pytest.mark.usefixtures("address")
def test_a_client_that_leaves_frees_its_place(server: Server, port: socket.socket) -> None:
    """Also one that leaves while the network still has its audio."""
    form = json.dumps(FORM).encode()
    head = b'{"type": "audio-start", "data": %s}\n' % form
    chunk = b'{"type": "audio-chunk", "data": %s, "payload_length": 320000}\n' % form
    for end in (b"", b'{"type": "audio-stop"}\n'):
        with socket.create_connection(port.getsockname()) as client:
            client.sendall(head + chunk + bytes(320_000) + end)
            wait_until(lambda: len(server.calls) == 1)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
        wait_until(lambda: not server.calls, 20.0)
