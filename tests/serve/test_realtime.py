"""/v1/realtime, by the client that people have."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import soxr
from websockets.sync.client import ClientConnection, connect

import asrkit
from asrkit.runtime import Recognizer
from asrkit.serve.dialects.audio import A_LAW, MU_LAW
from asrkit.serve.server import Server
from tests.serve.running import serving

Recordings = list[tuple[Path, np.ndarray]]
ITEM = "conversation.item.input_audio_transcription"


def talk(
    address: str, session: dict[str, Any], parts: list[bytes], commit: bool
) -> list[dict[str, Any]]:
    """The events of a connection, up to the one that completes the last part."""
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
            if commit:
                connection.input_audio_buffer.commit()
        wanted = len(parts)
        for event in connection:
            events.append(event.to_dict())
            wanted -= event.type == f"{ITEM}.completed"
            if wanted == 0:
                return events
    return events


def completed(events: list[dict[str, Any]]) -> list[str]:
    return [each["transcript"] for each in events if each["type"] == f"{ITEM}.completed"]


@pytest.mark.parametrize("rate", [8000, 16000, 24000, 48000])
def test_committed_parts(
    address: str, served: Recognizer, recordings: Recordings, rate: int
) -> None:
    parts = [
        (soxr.resample(samples / 32768, 16000, rate) * 32767).astype("<i2")
        for _, samples in recordings[:3]
    ]
    session = {"format": {"type": "audio/pcm", "rate": rate}, "turn_detection": None}
    if rate == 24000:
        del session["format"]  # the default
    events = talk(address, session, [part.tobytes() for part in parts], commit=True)
    alone = served.with_decoding(served.decoding._replace(endpointer=None))
    assert completed(events) == [alone.transcribe(part, rate).text for part in parts]
    assert [each["type"] for each in events[:2]] == ["session.created", "session.updated"]
    items = [each for each in events if each["type"] == "input_audio_buffer.committed"]
    ids = [each["item_id"] for each in items]
    assert [each["previous_item_id"] for each in items] == [None, *ids[:-1]]
    assert len({each["event_id"] for each in events}) == len(events)


@pytest.mark.parametrize(("kind", "table"), [("audio/pcmu", MU_LAW), ("audio/pcma", A_LAW)])
def test_telephony(
    address: str, served: Recognizer, recordings: Recordings, kind: str, table: np.ndarray
) -> None:
    samples = soxr.resample(recordings[1][1] / 32768, 16000, 8000) * 32767
    codes = np.abs(table[None].astype(int) - samples[:, None]).argmin(axis=1).astype(np.uint8)
    session = {"format": {"type": kind}, "turn_detection": None}
    events = talk(address, session, [codes.tobytes()], commit=True)
    alone = served.with_decoding(served.decoding._replace(endpointer=None))
    assert completed(events) == [alone.transcribe(table[codes], 8000).text]


def test_pauses(address: str, recordings: Recordings) -> None:
    quiet = np.zeros(24_000, np.int16)
    parts = [
        np.concatenate([samples, quiet]).astype("<i2").tobytes() for _, samples in recordings[:3]
    ]
    session = {
        "format": {"type": "audio/pcm", "rate": 16000},
        "turn_detection": {"type": "server_vad", "silence_duration_ms": 800},
    }
    events = talk(address, session, parts, commit=False)
    kinds = [each["type"].rpartition(".")[2] for each in events[2:]]
    for each in ("speech_started", "speech_stopped", "committed", "completed"):
        assert kinds.count(each) == 3
    assert kinds.index("speech_started") < kinds.index("speech_stopped") < kinds.index("committed")
    started = [e["audio_start_ms"] for e in events if e["type"].endswith("speech_started")]
    stopped = [e["audio_end_ms"] for e in events if e["type"].endswith("speech_stopped")]
    edges = [edge for pair in zip(started, stopped, strict=True) for edge in pair]
    assert edges == sorted(edges)
    assert all(completed(events))


@pytest.mark.parametrize("passes", [1, 2])
def test_deltas_come_before_the_pause(
    served: Recognizer, recordings: Recordings, passes: int
) -> None:
    """With one pass they are the transcript. With two, the second pass may correct them."""
    samples = np.pad(recordings[1][1], (0, 24_000))
    live = served.with_decoding(served.decoding._replace(second=None))
    own = live if passes == 1 else served
    first, said = (each.transcribe(samples).segments[0] for each in (live, own))
    with (
        serving(Server({"m": own})) as address,
        connect(f"ws://{address}/v1/realtime?intent=transcription") as client,
    ):
        client.recv(timeout=10)
        update(client, format={"type": "audio/pcm", "rate": 16000})
        deltas: list[str] = []
        parts = np.split(samples, [round(16_000 * first.words[-1].end)])
        for part, wanted in zip(parts, ("delta", "completed"), strict=True):
            audio = base64.b64encode(part.tobytes()).decode()
            client.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
            event = {"type": ""}
            while not event["type"].endswith(wanted):
                event = json.loads(client.recv(timeout=10))
                deltas += [event["delta"]] if event["type"] == f"{ITEM}.delta" else []
    assert event["transcript"] == said.text
    text = "".join(deltas)
    assert text == said.text or (passes == 2 and first.text.startswith(text))


def test_what_cannot_be_followed_is_said_and_the_rest_goes_on(
    address: str, recordings: Recordings
) -> None:
    bad: list[dict[str, Any]] = [
        {"type": "nonsense"},
        {"type": "input_audio_buffer.commit"},
        {"type": "input_audio_buffer.append", "audio": "***"},
        {
            "type": "session.update",
            "session": {"type": "transcription", "audio": {"input": {"format": {"type": "mp3"}}}},
        },
        {
            "type": "session.update",
            "session": {"audio": {"input": {"transcription": {"model": "/etc/passwd"}}}},
        },
    ]
    with connect(f"ws://{address}/v1/realtime?intent=transcription") as client:
        assert json.loads(client.recv())["type"] == "session.created"
        for number, event in enumerate(bad):
            client.send(json.dumps({"event_id": f"mine_{number}", **event}))
            answer = json.loads(client.recv(timeout=10))
            assert answer["type"] == "error"
            assert len(answer["error"]["message"]) > 5
            assert answer["error"]["event_id"] == f"mine_{number}"
        for text in ("[", '["event_id"]', '{"event_id": 7}'):  # without an id
            client.send(text)
            answer = json.loads(client.recv(timeout=10))
            assert (answer["type"], answer["error"]["event_id"]) == ("error", None)
        client.send('{"type": "input_audio_buffer.clear"}')
        assert json.loads(client.recv(timeout=10))["type"] == "input_audio_buffer.cleared"
    with connect(f"ws://{address}/v1/realtime") as client:
        assert "intent" in json.loads(client.recv(timeout=10))["error"]["message"]


def update(client: ClientConnection, **parts: Any) -> list[dict[str, Any]]:
    """The events that follow a session.update, up to the first that is not a warning."""
    event = {"type": "session.update", "session": {"audio": {"input": parts}}}
    client.send(json.dumps(event))
    client.send('{"type": "input_audio_buffer.append", "audio": "*"}')  # its error is the last one
    events = [json.loads(client.recv(timeout=10))]
    while "base64" not in events[-1].get("error", {}).get("message", ""):
        events.append(json.loads(client.recv(timeout=10)))
    return events[:-1]


BAD: list[dict[str, Any]] = [
    {"transcription": {"prompt": "seven," * 1500}},
    {"transcription": {"model": "nobody"}},
    {"transcription": {"prompt": 7}},
    {"turn_detection": {"type": "server_vad", "silence_duration_ms": 1}},
    {"turn_detection": {"type": "semantic_vad"}},
]


@pytest.mark.parametrize("bad", BAD)
def test_a_rejected_update_changes_nothing(
    address: str, served: Recognizer, recordings: Recordings, bad: dict[str, Any]
) -> None:
    """A rate that comes with something that cannot be is not the session's: its audio is before."""
    path, samples = recordings[0]
    with connect(f"ws://{address}/v1/realtime?intent=transcription") as client:
        client.recv(timeout=10)
        good = {"format": {"type": "audio/pcm", "rate": 16000}, "turn_detection": None}
        (updated,) = update(client, **good)
        assert updated["type"] == "session.updated"
        (refused,) = update(client, format={"type": "audio/pcm", "rate": 8000}, **bad)
        assert refused["type"] == "error"
        (again,) = update(client)
        assert again["session"] == updated["session"]
        audio = base64.b64encode(samples.tobytes()).decode()
        client.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
        client.send('{"type": "input_audio_buffer.commit"}')
        events: list[dict[str, Any]] = []
        while not completed(events):
            events.append(json.loads(client.recv(timeout=10)))
    alone = served.with_decoding(served.decoding._replace(endpointer=None))
    assert completed(events) == [alone.transcribe(path).text]


def test_an_update_keeps_what_it_does_not_name(address: str) -> None:
    with connect(f"ws://{address}/v1/realtime?intent=transcription") as client:
        created = json.loads(client.recv(timeout=10))["session"]["audio"]["input"]
        assert created["turn_detection"] == {"type": "server_vad", "silence_duration_ms": 400}
        assert created["format"] == {"type": "audio/pcm", "rate": 24000}
        found = created
        for change in (
            {"format": {"type": "audio/pcm", "rate": 8000}},
            {"transcription": {"prompt": "seven"}},
            {"transcription": {"model": "small-en-alnum"}},
            {"turn_detection": {"type": "server_vad", "silence_duration_ms": 700}},
            {"format": {"type": "audio/pcmu"}},
            {"turn_detection": None},
            {"turn_detection": {"type": "server_vad"}},
        ):
            (event,) = update(client, **change)
            expected = found | change
            expected["transcription"] = found["transcription"] | change.get("transcription", {})
            if change == {"turn_detection": {"type": "server_vad"}}:
                expected["turn_detection"] = created["turn_detection"]  # the server's pause
            found = event["session"]["audio"]["input"]
            assert found == expected


def test_what_has_no_effect_is_said(address: str) -> None:
    """After session.updated, and OpenAI's client goes on."""
    with connect(f"ws://{address}/v1/realtime?intent=transcription") as client:
        client.recv(timeout=10)
        updated, *warnings = update(
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
        (_,) = update(client, transcription={"language": "en-US", "prompt": ""})
        _, warning = update(client, transcription={"language": "de"})
        assert warning["message"] == "language 'de' has no effect: the model recognises en"
        client.send('{"type": "input_audio_buffer.clear", "item": 1}')
        assert json.loads(client.recv(timeout=10))["error"]["message"].endswith("not permitted")
    events = talk(address, {"noise_reduction": {"type": "near_field"}}, [], commit=False)
    assert events[1]["type"] == "session.updated"


def test_segments_end_as_the_servers_options_say(recordings: Recordings) -> None:
    """A client that names no pause has the server's; any client has its other options."""
    parts = [samples for _, samples in recordings[:4]]
    samples = np.concatenate([*parts, np.zeros(32_000, np.int16)])
    endpointer = asrkit.Endpointer(900, max_segment_ms=1500, reset_encoder=True)
    model = asrkit.load("small-en-alnum", chunk_size=8, endpointer=endpointer)
    audio = {"format": {"type": "audio/pcm", "rate": 16000}}
    counts = []
    with serving(Server({"m": model})) as address:
        for session, pause_ms in (
            (audio, 900),
            ({**audio, "turn_detection": {"type": "server_vad", "silence_duration_ms": 300}}, 300),
        ):
            own = model.decoding._replace(endpointer=endpointer.changed(pause_ms=pause_ms))
            segments = model.with_decoding(own).transcribe(samples).segments
            expected = [each.text for each in segments if each.text]
            sent = [samples.tobytes()] + [b""] * (len(expected) - 1)
            assert completed(talk(address, session, sent, commit=False)) == expected
            counts.append(len(expected))
    assert counts[0] != counts[1] > 1


def test_g711_is_the_standard() -> None:
    """Values of ITU-T G.711, tables 1a and 2a: scaled to 16 bits."""
    assert [MU_LAW[code] for code in (0xFF, 0x7F, 0x80, 0x00, 0xF0)] == [0, 0, 32124, -32124, 120]
    assert [A_LAW[code] for code in (0xD5, 0x55, 0xAA, 0x2A)] == [8, -8, 32256, -32256]
    for table in (MU_LAW, A_LAW):
        assert (table[:128] == -table[128:]).all()
