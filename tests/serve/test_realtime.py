"""/v1/realtime, by the client that people have, and its messages."""

import base64
import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import soxr
from starlette.datastructures import QueryParams

from asrkit.errors import UserError
from asrkit.runtime import Endpointer, Recognizer
from asrkit.serve.converse import Commit
from asrkit.serve.dialects.audio import A_LAW, MU_LAW
from asrkit.serve.dialects.openai_realtime import Realtime
from asrkit.serve.server import Server
from tests.serve.offline import Offline, fields, segment

Recordings = list[tuple[Path, np.ndarray]]
ITEM = "conversation.item.input_audio_transcription"


def talk(address: str, session: dict[str, Any], parts: list[bytes]) -> list[dict[str, Any]]:
    """The events of a connection that commits parts, up to the one that completes the last."""
    client = openai.OpenAI(base_url=f"http://{address}/v1", api_key="none")
    events = []
    with client.realtime.connect(extra_query={"intent": "transcription"}) as connection:
        events.append(connection.recv().to_dict())
        connection.session.update(session={"type": "transcription", "audio": {"input": session}})
        events.append(connection.recv().to_dict())
        for part in parts:
            for start in range(0, len(part), 4800):
                audio = base64.encodebytes(part[start : start + 4800]).decode()  # with line ends
                connection.input_audio_buffer.append(audio=audio)
            connection.input_audio_buffer.commit()
        while len(completed(events)) < len(parts):
            events.append(connection.recv().to_dict())
    return events


def completed(events: list[dict[str, Any]]) -> list[str]:
    return [each["transcript"] for each in events if each["type"] == f"{ITEM}.completed"]


def test_committed_parts(address: str, served: Recognizer, recordings: Recordings) -> None:
    parts = [
        (soxr.resample(samples / 32768, 16000, 24000) * 32767).astype("<i2")
        for _, samples in recordings[:3]
    ]
    sent = [part.tobytes() for part in parts]
    events = talk(address, {"turn_detection": None}, sent)
    alone = served.with_decoding(served.decoding._replace(endpointer=None))
    assert completed(events) == [alone.transcribe(part, 24000).text for part in parts]
    assert [each["type"] for each in events[:2]] == ["session.created", "session.updated"]
    items = [each for each in events if each["type"] == "input_audio_buffer.committed"]
    ids = [each["item_id"] for each in items]
    assert [each["previous_item_id"] for each in items] == [None, *ids[:-1]]
    assert len({each["event_id"] for each in events}) == len(events)


def opened(server: Server, query: str = "intent=transcription") -> Offline:
    return Offline(Realtime(QueryParams(query), Endpointer(400)), server)


def change(client: Offline, **parts: Any) -> list[dict[str, Any]]:
    """The events that follow a session.update."""
    return client.read(update(**parts))


def update(**parts: Any) -> str:
    return json.dumps({"type": "session.update", "session": {"audio": {"input": parts}}})


def audio(data: bytes) -> str:
    """The event of audio, which encoders write in lines."""
    text = base64.encodebytes(data).decode()
    return json.dumps({"type": "input_audio_buffer.append", "audio": text})


@pytest.fixture
def one_pass(served: Recognizer) -> Iterator[Server]:
    live = served.with_decoding(served.decoding._replace(second=None))
    with closing(Server({"m": live})) as server:
        yield server


def test_events_of_pauses(one_pass: Server) -> None:
    """An item for each segment; deltas are stable text, which joined is the transcript."""
    client = opened(one_pass)
    first = client.write(live="four five six", start=0.5, stable="four")
    second = client.write(live="four five six", start=0.5, stable="four five")
    third = client.write(segment("four five six", 0.5, 2.1), live="seven", start=3.0)
    kinds = [each["type"].rpartition(".")[2] for each in [*first, *second, *third]]
    assert kinds == [
        "speech_started", "delta", "delta", "speech_stopped", "committed", "delta", "completed",
        "speech_started",
    ]  # fmt: skip
    deltas = [each["delta"] for each in [*first, *second, *third] if "delta" in each]
    assert deltas == ["four", " five", " six"]
    assert (first[0]["audio_start_ms"], third[0]["audio_end_ms"]) == (500, 2100)
    assert third[-2]["usage"] == {"type": "duration", "seconds": 2}
    assert third[-1]["audio_start_ms"] == 3000
    ids = [each["item_id"] for each in [*first, *second, *third]]
    assert len({*ids[:-1]}) == 1
    assert ids[-1] != ids[0]


def test_deltas_of_two_passes_are_live_words(server: Server) -> None:
    """Except the last one, and none that differs from what was sent."""
    client, deltas = opened(server), list[list[Any]]()
    for live in ("four", "four five six", "for five six seven"):
        events = client.write(live=live)
        deltas.append([each["delta"] for each in events if "delta" in each])
    events = client.write(segment("for five six"))
    assert deltas == [[], ["four five"], []]
    assert [each["type"].rpartition(".")[2] for each in events][-1] == "completed"
    assert (completed(events), "delta" in events[-2]) == (["for five six"], False)


def test_events_of_commits(server: Server) -> None:
    client = opened(server)
    change(client, turn_detection=None)
    for message in (audio(b""), '{"type": "input_audio_buffer.clear"}'):
        client.read(message)
        with pytest.raises(UserError, match="commit needs audio: append some first"):
            client.read('{"type": "input_audio_buffer.commit"}')
    client.read(audio(b"\0\0"))
    assert client.read('{"type": "input_audio_buffer.commit"}') == [Commit()]
    assert completed(client.write(segment("a"), seconds=1.0)) == []
    events = client.write(segment("b"), seconds=2.0, commits=1)
    assert completed(events) == ["a b"]
    again = client.write(seconds=3.0, commits=2)
    assert fields(again, "transcript")[-1] == ("",)
    assert again[0]["previous_item_id"] == events[0]["item_id"]


@pytest.mark.parametrize(
    ("form", "data", "samples", "rate"),
    [
        ({"type": "audio/pcm", "rate": 48000}, b"\1\0\2", [1], 48000),
        ({"type": "audio/pcmu"}, bytes(range(256)), MU_LAW.tolist(), 8000),
        ({"type": "audio/pcma"}, bytes(range(256)), A_LAW.tolist(), 8000),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("vad", "pause_ms", "end_of_turn"),
    [
        (None, 0, "off"), ({"type": "server_vad"}, 400, None),
        ({"type": "server_vad", "silence_duration_ms": 700}, 700, None),
    ],
)  # fmt: skip
def test_sessions(
    server: Server, form: dict[str, Any], data: bytes, samples: list[int], rate: int,
    vad: dict[str, Any] | None, pause_ms: int, end_of_turn: str | None,
) -> None:  # fmt: skip
    client = opened(server)
    change(client, format=form, turn_detection=vad)
    assert client.samples(audio(data)) == [samples]
    begin = client.begun[-1]
    assert (begin.sample_rate, begin.wish.pause_ms, begin.wish.end_of_turn) == (
        rate, pause_ms, end_of_turn,
    )  # fmt: skip


def test_an_update_keeps_what_it_does_not_name(server: Server) -> None:
    client = opened(server)
    found = client.said[0]["session"]["audio"]["input"]
    assert found["turn_detection"] == {"type": "server_vad", "silence_duration_ms": 400}
    assert found["format"] == {"type": "audio/pcm", "rate": 24000}
    model = found["transcription"]["model"]
    for new in (
        {"format": {"type": "audio/pcm", "rate": 8000}}, {"transcription": {"prompt": "seven"}},
        {"turn_detection": {"type": "server_vad", "silence_duration_ms": 700}},
        {"format": {"type": "audio/pcmu"}}, {"turn_detection": None},
    ):  # fmt: skip
        (event,) = change(client, **new)
        expected = found | new
        expected["transcription"] = found["transcription"] | new.get("transcription", {})
        found = event["session"]["audio"]["input"]
        assert (event["type"], found) == ("session.updated", expected)
    assert found["transcription"]["model"] == model == "small-en-alnum"


@pytest.mark.parametrize(
    "bad",
    [
        {"transcription": {"prompt": "seven," * 1500}}, {"transcription": {"model": "nobody"}},
        {"transcription": {"prompt": 7}}, {"turn_detection": {"type": "semantic_vad"}},
        {"turn_detection": {"type": "server_vad", "silence_duration_ms": 1}},
        {"format": {"type": "mp3"}},
    ],
)  # fmt: skip
def test_a_rejected_update_changes_nothing(server: Server, bad: dict[str, Any]) -> None:
    client = opened(server)
    (before,) = change(client, format={"type": "audio/pcm", "rate": 16000})
    with pytest.raises(UserError):
        change(client, **{"format": {"type": "audio/pcm", "rate": 8000}} | bad)
    (after,) = change(client)
    assert after["session"] == before["session"]
    assert client.begun[-1].sample_rate == 16000


BAD: list[tuple[str | bytes, str]] = [
    ('{"type": "nonsense"}', "nonsense"), ("[", "expected an event"),
    ('{"type": "input_audio_buffer.append", "audio": "*"}', "base64"),
    ('{"type": "input_audio_buffer.clear", "item": 1}', "not permitted"),
    (b"\xff", "expected an event"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "why"), BAD)
def test_what_cannot_be_followed_is_said(server: Server, message: str | bytes, why: str) -> None:
    client = opened(server)
    with pytest.raises(UserError, match=re.escape(why)) as caught:
        client.read(message)
    answer = client.dialect.wrong(caught.value) or {}
    assert (answer["type"], answer["error"]["event_id"]) == ("error", None)
    (cleared,) = client.read('{"type": "input_audio_buffer.clear"}')
    assert cleared["type"] == "input_audio_buffer.cleared"
    client.read(audio(b"\0\0"))
    with pytest.raises(UserError, match=r"has audio already: send input_audio_buffer\.clear first"):
        change(client)


def test_only_transcription_is_served(server: Server) -> None:
    with pytest.raises(UserError, match="intent=transcription is served"):
        opened(server, "")


def test_what_has_no_effect_is_said(server: Server) -> None:
    client = opened(server)
    updated, *warnings = change(
        client, noise_reduction={"type": "near_field"}, transcription={"prompt": "☃, seven"},
        turn_detection={"type": "server_vad", "threshold": 0.5, "create_response": None},
    )  # fmt: skip
    assert updated["type"] == "session.updated"
    assert [each["type"] for each in warnings] == ["warning", "warning"]
    assert "'☃'" in warnings[0]["message"]
    assert warnings[1]["message"] == (
        "no effect here: session.audio.input.noise_reduction, "
        "session.audio.input.turn_detection.threshold"
    )
    (_,) = change(client, transcription={"language": "en-US", "prompt": ""})
    _, warning = change(client, transcription={"language": "de"})
    assert warning["message"] == "language 'de' has no effect: the model recognises en"


def test_g711_is_the_standard() -> None:
    """Values of ITU-T G.711, tables 1a and 2a: scaled to 16 bits."""
    assert [MU_LAW[code] for code in (0xFF, 0x7F, 0x80, 0x00, 0xF0)] == [0, 0, 32124, -32124, 120]
    assert [A_LAW[code] for code in (0xD5, 0x55, 0xAA, 0x2A)] == [8, -8, 32256, -32256]
    for table in (MU_LAW, A_LAW):
        assert (table[:128] == -table[128:]).all()
