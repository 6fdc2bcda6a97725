"""/v1/stream: what comes back is what the recogniser makes of the same samples alone."""

import asyncio
import gc
import itertools
import json
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from asrkit import Endpointer
from asrkit.runtime import Recognizer, Result
from asrkit.serve.calls import Call, CallUpdate
from asrkit.serve.converse import Conversation
from asrkit.serve.converse import converse as talk
from asrkit.serve.dialects.asrkit_stream import AsrkitStream
from asrkit.serve.dialects.messages import Start
from asrkit.serve.dialects.vosk import Vosk
from asrkit.serve.resumable import ResumableConversation
from asrkit.serve.resumption import SuspendedCall
from asrkit.serve.server import Limits, Server
from asrkit.serve.store import SqliteStore
from asrkit.serve.worker import Worker
from tests.serve.offline import segment, update
from tests.serve.running import Recordings, call_of, connected, serving, spans


def start(address: str, **options: object) -> ClientConnection:
    url = address if "?" in address else f"{address}/v1/stream"
    client = connected(f"ws://{url}", max_size=None)
    client.send(json.dumps({"type": "start", **options}))
    return client


def converse(client: ClientConnection, parts: list[bytes | str]) -> list[dict[str, Any]]:
    """All messages of a call that sends these."""
    with suppress(ConnectionClosedError):  # the server may refuse the call before all is sent
        for part in [*parts, '{"type": "end"}']:
            client.send(part)
    return answers(client)


def answers(client: ClientConnection) -> list[dict[str, Any]]:
    """All messages until the connection is closed, in whatever way."""
    found = []
    with client, suppress(ConnectionClosedError):
        for message in client:
            found.append(json.loads(message))
    return found


def text_of(messages: list[dict[str, Any]]) -> str:
    return " ".join(each["text"] for each in messages if each["type"] == "final")


def in_bytes(samples: np.ndarray, seed: int) -> list[bytes]:
    """Packets of any sizes, which may end in the middle of a sample."""
    data = samples.tobytes()
    draw = np.random.default_rng(seed)
    cuts = np.sort(draw.integers(0, len(data), max(1, len(data) // 4000)))
    edges = [0, *cuts.tolist(), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def assert_is(messages: list[dict[str, Any]], expected: Result, num_samples: int) -> None:
    finals = [each for each in messages if each["type"] == "final"]
    assert [each["text"] for each in finals] == [each.text for each in expected.segments]
    for mine, other in zip(finals, expected.segments, strict=True):
        assert [mine["start"], mine["end"]] == [other.spoken, other.spoken_end]
        assert mine["context"] == "full"
        assert [(w["text"], w["start"], w["end"]) for w in mine["words"]] == spans(other.words)
    assert messages[0]["type"] == "started"
    assert messages[-1] == {"type": "ended", "ack": num_samples}
    acks = [each["ack"] for each in messages[1:]]
    assert acks == sorted(acks)


def test_callers_at_the_same_time_get_what_each_would_alone(
    address: str, served: Recognizer, recordings: Recordings
) -> None:
    """One of them has a pause and hotwords of its own."""

    def call(number: int) -> list[dict[str, Any]]:
        options = {} if number else {"pause_ms": 200, "hotwords": {"seven": 3.0}}
        return converse(start(address, **options), list(in_bytes(recordings[number][1], number)))

    own = served.with_decoding(served.decoding._replace(endpointer=Endpointer(pause_ms=200)))
    others = [own.with_hotwords({"seven": 3.0}), *[served] * (len(recordings) - 1)]
    with ThreadPoolExecutor(len(recordings)) as callers:
        answers = list(callers.map(call, range(len(recordings))))
    for messages, (path, samples), alone in zip(answers, recordings, others, strict=True):
        assert_is(messages, alone.transcribe(path), len(samples))
    everything = [each for messages in answers for each in messages]
    assert any(each["type"] == "partial" and each["text"] for each in everything)
    assert sum(len(text_of(each)) for each in answers) > 50


def test_other_rates_encodings_and_commits(
    address: str, served: Recognizer, recordings: Recordings
) -> None:
    whole = np.concatenate([samples for _, samples in recordings[:4]]).astype(np.float32) / 32768
    middle = len(whole) // 4 + 7
    parts = np.split(whole[::2], [middle])
    client = start(address, sample_rate=8000, encoding="pcm_f32le", pause_ms=0)
    sent: list[bytes | str] = [*in_bytes(parts[0], 1), '{"type": "commit"}', *in_bytes(parts[1], 2)]
    messages = converse(client, sent)
    alone = served.with_decoding(served.decoding._replace(endpointer=None))
    finals = [each for each in messages if each["type"] == "final"]
    results = [alone.transcribe(part, 8000) for part in parts]
    assert [each["text"] for each in finals] == [result.text for result in results]
    assert finals[1]["start"] == round(middle / 8000 + results[1].words[0].start, 3)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_call_that_is_over_needs_no_garbage_collection(
    server: Server, address: str, recordings: Recordings, leaves: bool
) -> None:
    """Garbage collections stop all calls, and take longer the more calls they free."""
    audio = recordings[0][1].tobytes()
    gc.disable()
    try:
        client = start(address)
        client.recv()
        call = weakref.ref(next(iter(server.calls)))
        if leaves:
            client.send(audio)
            client.close()
        else:
            converse(client, [audio])
        until = time.monotonic() + 10
        while call() is not None and time.monotonic() < until:
            time.sleep(0.02)
        assert call() is None
    finally:
        gc.enable()


def test_audio_that_ends_within_a_sample_is_said(
    address: str, served: Recognizer, recordings: Recordings
) -> None:
    path, samples = recordings[0]
    data = (samples.astype(np.float32) / 32768).tobytes()
    *messages, ended = converse(start(address, encoding="pcm_f32le"), [data + b"xxx"])
    text = "the audio ends within a sample: 3 bytes are not used"
    assert ended == {"type": "ended", "ack": len(samples), "warning": text}
    assert text_of(messages) == served.transcribe(path).text


def test_a_start_that_cannot_be_is_told_so(address: str) -> None:
    client = start(address, sample_rate=15_999)
    assert [each["reason"] for each in answers(client)] == ["request"]
    assert client.close_code == 1008


def test_a_bad_call_leaves_no_trace_on_its_neighbours(
    address: str, served: Recognizer, recordings: Recordings
) -> None:
    path, samples = recordings[1]
    bad = start(address, encoding="pcm_f32le")
    good = start(address)
    half = len(samples) // 2
    good.send(samples[:half].tobytes())
    bad.send(np.full(16_000, np.nan, np.float32).tobytes())
    refusal = answers(bad)[-1]
    assert refusal["type"] == "error"
    assert "sample 0" in refusal["message"]
    gone = start(address)
    gone.send(samples.tobytes())
    gone.socket.close()  # as where a cable is pulled
    assert_is(converse(good, [samples[half:].tobytes()]), served.transcribe(path), len(samples))


def test_limits_tokens_and_origins(served: Recognizer, recordings: Recordings) -> None:
    limits = Limits(streams=1, call_s=2.0, silence_s=2.0)
    server = Server({"m": served}, limits, token="secret", origins=("https://friend.example",))
    with serving(server) as address:
        good = {"Authorization": "Bearer secret"}
        evil = {**good, "Origin": "https://evil.example"}
        for path, headers, status, why in (
            ("/v1/stream", {}, 401, "the token is missing or wrong"),
            ("/v1/listen", {}, 401, '"err_code":"TOKEN"'),  # in Deepgram's form
            ("/v1/stream", evil, 403, "pages of other sites may not connect; see --origin"),
            ("/v1/straem", good, 404, "no WebSocket is at '/v1/straem': see docs"),
        ):
            with pytest.raises(InvalidStatus) as refused:
                connect(f"ws://{address}{path}", additional_headers=headers)
            assert refused.value.response.status_code == status
            assert why in (refused.value.response.body or b"").decode()
        url = f"{address}/v1/stream?token=secret"
        first = start(url)
        assert json.loads(first.recv())["type"] == "started"
        second = start(url)
        assert [each["reason"] for each in answers(second)] == ["streams"]
        assert second.close_code == 1013
        error = answers(first)[-1]
        assert (error["reason"], error["message"]) == ("silence", "no message for 2 s")
        with start(url) as third:
            third.send(recordings[-1][1][:32_000].tobytes())
            third.send(bytes(2))
            assert answers(third)[-1]["reason"] == "length"
            assert third.close_reason == "a call may last 2 s: start another one"
        assert len(server.calls) == 0


def test_audio_far_ahead_waits_in_the_socket(
    served: Recognizer, recordings: Recordings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller that sends an hour at once costs the memory of `ahead_s` and of the socket."""
    samples = np.concatenate([each for _, each in recordings])
    server = Server({"m": served}, Limits(ahead_s=2.0))
    with serving(server) as address:
        client = start(address)
        most = []
        serve = Worker.serve

        def watched(worker: Worker, call: Call) -> None:
            most.append(call.seconds - call.processed)
            serve(worker, call)

        monkeypatch.setattr(Worker, "serve", watched)
        packets = np.split(samples, range(1600, len(samples), 1600))
        messages = converse(client, [each.tobytes() for each in packets])
    assert_is(messages, served.transcribe(samples), len(samples))
    assert 2.0 < max(most) < 2.5


def of_channel(messages: list[dict[str, Any]], channel: int) -> list[dict[str, Any]]:
    kinds = ("started", "final", "ended")
    return [
        each
        for each in messages
        if each["type"] in kinds and each.get("channel", channel) == channel
    ]


def test_each_channel_is_what_it_would_be_alone(
    address: str, served: Recognizer, recordings: Recordings
) -> None:
    call = call_of(recordings, 1, 2)
    messages = converse(start(address, channels=2), in_bytes(call, 0))
    for channel in range(2):
        own = of_channel(messages, channel)
        assert_is(own, served.transcribe(call[:, channel]), len(call))
        with pytest.raises(AssertionError):  # control: the other one
            assert_is(own, served.transcribe(call[:, 1 - channel]), len(call))


def test_a_commit_is_for_all_channels(
    address: str, served: Recognizer, recordings: Recordings
) -> None:
    call = call_of(recordings, 0, 1)
    half = len(call) // 2
    parts = [call[:half].tobytes(), '{"type": "commit"}', call[half:].tobytes()]
    messages = converse(start(address, channels=2), parts)
    for channel in range(2):
        texts = [each["text"] for each in of_channel(messages, channel)[1:-1]]
        alone = [served.transcribe(part[:, channel]).text for part in (call[:half], call[half:])]
        assert " ".join(texts).split() == " ".join(alone).split()


def test_channels_are_streams(served: Recognizer) -> None:
    """They count against the limits, and a call that is refused takes none."""
    server = Server({"m": served}, Limits(streams=2))
    with serving(server) as address:
        (message,) = answers(start(address, channels=3))
        assert (message["reason"], len(server.calls)) == ("streams", 0)
        with start(address, channels=2) as client:
            names = json.loads(client.recv(timeout=10))
            assert (names["type"], len(server.calls)) == ("started", 2)
        with connected(f"ws://{address}/v1/stream") as client:
            resume = {"type": "resume", "id": names["id"], "token": names["token"], "finals": 3}
            client.send(json.dumps(resume))
            text = json.loads(client.recv(timeout=10))["message"]
            assert text == "finals: expected 2 numbers, got 3"


def test_a_client_that_reads_nothing_is_left(
    served: Recognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asrkit.serve.converse.SEND_S", 0.05)

    async def main() -> None:
        line: Any = SimpleNamespace(receive=AsyncMock(return_value=b""))
        line.send = lambda message: asyncio.sleep(60)
        conversation = Conversation(line, server, Vosk())
        await asyncio.wait_for(talk(conversation), 10)
        assert not server.calls
        server.close()

    server = Server({"m": served})
    asyncio.run(main())
    assert 'asrkit_dropped_total{reason="disconnect"} 1.0' in server.figures.exposition().decode()


def test_no_audio_is_acknowledged_before_it_is_saved(served: Recognizer, tmp_path: Path) -> None:
    """Not even while a channel has ended, and texts of the other one are still written."""
    has_ended, sent = asyncio.Event(), list[dict[str, Any]]()

    async def send(message: str) -> None:
        sent.append(json.loads(message))
        await has_ended.wait()

    def ended(*updates: CallUpdate) -> Any:
        return SimpleNamespace(received=100, next_update=AsyncMock(side_effect=[*updates, None]))

    async def main() -> None:
        server = Server({"m": served}, store=SqliteStore(tmp_path / "calls", 60.0))
        line: Any = SimpleNamespace(send=send)
        talk = ResumableConversation(line, server, dialect := AsrkitStream())
        talk.last = SuspendedCall(Start(type="start", channels=2))
        dialect.begin(talk.last)
        last = update(segment("one"), segment("two"), is_final=True)
        talk.calls = [ended(), ended(last)]
        writer = asyncio.ensure_future(talk.write(1, talk.calls[1]))
        while not sent:
            await asyncio.sleep(0)
        await talk.write(0, talk.calls[0])
        has_ended.set()
        await writer
        server.close()

    asyncio.run(main())
    assert [(each["text"], each["ack"]) for each in sent] == [("one", 0), ("two", 0)]
