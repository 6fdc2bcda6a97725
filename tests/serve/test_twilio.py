"""Twilio's media streams: the messages of Twilio's documentation."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soxr
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from asrkit.errors import UserError
from asrkit.runtime import Recognizer
from asrkit.serve.converse import Finish
from asrkit.serve.dialects.audio import MU_LAW
from asrkit.serve.dialects.twilio import Twilio
from asrkit.serve.server import Limits, Server
from tests.serve.offline import Offline, fields, segment
from tests.serve.running import serving

Recordings = list[tuple[Path, np.ndarray]]
Message = dict[str, Any]
SID = "MZ18ad3ab5a668481ce02b83e7395059f0"
CONNECTED: Message = {"event": "connected", "protocol": "Call", "version": "1.0.0"}


def start(*tracks: str, **parameters: str) -> Message:
    return {
        "event": "start", "sequenceNumber": "1", "streamSid": SID,
        "start": {
            "accountSid": "AC01", "streamSid": SID, "callSid": "CA01", "tracks": [*tracks],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
            "customParameters": {"order": "42"} | parameters,
        },
    }  # fmt: skip


def media(track: str, codes: bytes) -> Message:
    payload = base64.b64encode(codes).decode()
    about = {"track": track, "chunk": "2", "timestamp": "20", "payload": payload}
    return {"event": "media", "sequenceNumber": "3", "media": about, "streamSid": SID}


STOP: Message = {
    "event": "stop", "sequenceNumber": "5", "streamSid": SID,
    "stop": {"accountSid": "AC01", "callSid": "CA01"},
}  # fmt: skip
MARK: Message = {"event": "mark", "streamSid": SID, "mark": {"name": "a"}}


def codes_of(samples: np.ndarray) -> np.ndarray:
    """A recording at 16 kHz as a telephone sends it."""
    narrow = soxr.resample(samples / 32768, 16000, 8000) * 32767
    return np.abs(MU_LAW[None].astype(int) - narrow[:, None]).argmin(axis=1).astype(np.uint8)


def answers(client: ClientConnection) -> list[Message]:
    found = []
    try:
        while True:
            found.append(json.loads(client.recv(timeout=20)))
    except ConnectionClosed:
        return found


def talk(address: str, *messages: Message) -> list[Message]:
    with connect(f"ws://{address}/twilio") as client:
        for message in messages:
            client.send(json.dumps(message))
        return answers(client)


def test_two_tracks(address: str, served: Recognizer, recordings: Recordings) -> None:
    """Each has the text and the times of its own audio."""
    tracks = {
        name: codes_of(recordings[number][1]) for number, name in enumerate(("inbound", "outbound"))
    }
    sent = [
        media(track, codes[at : at + 160].tobytes())
        for at in range(0, max(map(len, tracks.values())), 160)
        for track, codes in tracks.items()
        if at < len(codes)
    ]
    sent[5:5] = [MARK, {"event": "of-tomorrow"}]
    found = talk(address, CONNECTED, start(*tracks), *sent, STOP)
    texts = [each for each in found if each["event"] == "transcript"]
    for track, codes in tracks.items():
        expected = served.transcribe(MU_LAW[codes], 8000)
        own = [each for each in texts if each["track"] == track and each["is_final"]]
        assert [each["text"] for each in own] == [s.text for s in expected.segments if s.text]
        words = [(w["text"], w["start"], w["end"]) for each in own for w in each["words"]]
        assert words == [(w.text, w.start, w.end) for w in expected.words]
    assert len({each["track"] for each in texts}) == 2  # the control
    assert found[-1] == {"event": "ended", "streamSid": SID}
    assert any(not each["is_final"] for each in texts)


def changed(**changes: object) -> Message:
    message = start("inbound")
    return message | {"start": message["start"] | changes}


FORMAT = start("inbound")["start"]["mediaFormat"]
REFUSED: list[tuple[list[Any], str]] = [
    ([STOP], "must begin with the event start, got 'stop'"),
    ([changed(tracks=["inbound_track"])], "start.tracks"),
    ([changed(mediaFormat=FORMAT | {"encoding": "audio/x-alaw"})], "start.mediaFormat.encoding"),
    ([start("inbound", model="/etc/passwd")], "is not served"),
    ([start("inbound", pause_ms="-1")], "start.customParameters.pause_ms"),
    ([start("inbound", hotwords="seven," * 1001)], "at most 1000 hotwords"),
    ([start("inbound"), start("inbound")], "has started already"),
    ([start("inbound"), media("outbound", b"")], "media.track"),
    ([start("inbound"), {"event": "media", "media": {"payload": "***"}}], "base64"),
    ([start("inbound"), {"event": 7}], "the field event is missing"),
    ([[]], "expected a message of a media stream"),
]


@pytest.mark.parametrize(("messages", "why"), REFUSED)
def test_refusals(server: Server, messages: list[Any], why: str) -> None:
    talk = Offline(Twilio(""), server)
    with pytest.raises(UserError, match=re.escape(why)):
        talk.read(*map(json.dumps, messages))


def test_messages(server: Server) -> None:
    """Items of the parameters and of the tracks; transcripts of updates."""
    talk = Offline(Twilio("secret"), server)
    begin = start("inbound", "outbound", hotwords="oh seven, ☃", pause_ms="0")
    (warning,) = talk.read(json.dumps(CONNECTED), json.dumps(begin))
    assert (warning["event"], "'☃'" in warning["message"]) == ("warning", True)
    (item,) = talk.begun
    assert (item.channels, item.sample_rate, item.token) == (2, 8000, "secret")
    assert (item.wish.phrases, item.wish.pause_ms) == (["oh seven", "☃"], 0)
    (append,) = talk.read(json.dumps(media("outbound", b"\xff\x00")))
    assert (append.channel, append.samples.tolist()) == (1, [0, -32124])
    assert talk.read(*map(json.dumps, (MARK, {"event": "of-tomorrow"}))) == []
    assert talk.read(json.dumps(STOP)) == [Finish()]
    names = ("event", "track", "is_final", "text")
    live = talk.write(live="four", channel=1)
    assert fields(live, *names) == [("transcript", "outbound", False, "four")]
    assert talk.write(live="four", channel=1) == []  # nothing new
    ended = talk.write(segment("four"), segment(""), live="five", channel=1)
    assert fields(ended, *names) == [
        ("transcript", "outbound", True, "four"), ("transcript", "outbound", False, "five"),
    ]  # fmt: skip
    assert [*talk.dialect.ended()] == [{"event": "ended", "streamSid": SID}]


def test_the_token(served: Recognizer) -> None:
    """Twilio's addresses have no query: the token is a parameter, or a header of another client."""
    with serving(Server({"m": served}, Limits(silence_s=1.0), token="secret")) as address:
        for parameters, reason in (({"token": "secret"}, None), ({"token": "x"}, "token")):
            *_, last = talk(address, CONNECTED, start("inbound", **parameters), STOP)
            assert last.get("reason") == reason
        headers = {"Authorization": "Bearer secret"}
        with connect(f"ws://{address}/twilio", additional_headers=headers) as client:
            client.send(json.dumps(start("inbound")))
            client.send(json.dumps(STOP))
            assert answers(client)[-1]["event"] == "ended"
        assert talk(address, CONNECTED)[-1]["reason"] == "silence"
        with pytest.raises(InvalidStatus):  # the control: other addresses ask at once
            connect(f"ws://{address}/vosk")
