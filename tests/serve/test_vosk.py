"""/vosk: the flow of Vosk's published clients, and its messages."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soxr
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from asrkit.errors import UserError
from asrkit.runtime import Recognizer
from asrkit.serve.converse import Finish
from asrkit.serve.dialects.vosk import Vosk
from asrkit.serve.server import Server
from tests.serve.offline import Offline, segment

Recordings = list[tuple[Path, np.ndarray]]
AUDIO = b"\1\0\2\0"


def published(
    address: str, config: dict[str, Any] | None, rate: int, data: bytes
) -> list[dict[str, Any]]:
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


def texts_of(replies: list[dict[str, Any]]) -> list[str]:
    return [each["text"] for each in replies if each.get("text")]


def test_the_flow_of_published_clients(
    address: str, served: Recognizer, recordings: Recordings
) -> None:
    for (path, samples), config in zip(
        recordings[:2], ({"words": True}, {"phrase_list": ["seven"]}), strict=True
    ):
        replies = published(address, {"sample_rate": 16000, **config}, 16000, samples.tobytes())
        assert all(("partial" in each) != ("text" in each) for each in replies)
        expected = served.with_hotwords(config.get("phrase_list", [])).transcribe(path)
        assert " ".join(texts_of(replies)) == expected.text
        words = [word for each in replies for word in each.get("result", [])]
        assert [(w["word"], w["start"], w["end"]) for w in words] == [
            (w.text, w.start, w.end) for w in expected.words
        ]
    half = soxr.resample(recordings[2][1], 16000, 8000).astype("<i2")  # Vosk's default
    replies = published(address, None, 8000, half.tobytes())
    assert " ".join(texts_of(replies)) == served.transcribe(half, 8000).text
    with connect(f"ws://{address}/vosk") as client:
        client.send('{"config": {"sample_rate": 16000}}')
        for path, samples in recordings[:3]:
            client.send(samples.tobytes())
            client.send('{"reset" : 1}')
            texts = texts_of([json.loads(client.recv(timeout=10)) for _ in range(2)])
            assert " ".join(texts) == served.transcribe(path).text


def configured(server: Server, **config: Any) -> Offline:
    talk = Offline(Vosk(), server)
    assert talk.read(json.dumps({"config": config})) == []  # as vosk-server
    return talk


def test_replies(server: Server) -> None:
    """One to each message: the oldest segment that waits, or the live text; a reset is a call."""
    talk = configured(server)
    assert talk.read(AUDIO)[1:] == [{"partial": ""}]
    assert talk.write(segment("one"), segment("two"), live="three") == []
    words = [{"conf": 0.5, "end": 0.4, "start": 0.0, "word": "one"}]
    assert talk.read(AUDIO)[1:] == [{"result": words, "text": "one"}]
    assert talk.read(AUDIO)[1:][0]["text"] == "two"
    assert talk.read(AUDIO)[1:] == [{"partial": "three"}]
    assert talk.read('{"reset": 1}') == [Finish(is_last=False)]
    talk.write(segment("three"), segment("four"))
    (ended,) = talk.dialect.ended()
    assert ended["text"] == "three four"
    talk.read('{"config": {"words": false}}', AUDIO)
    talk.write(segment("five"))
    assert talk.read(AUDIO)[1:] == [{"text": "five"}]
    assert len(talk.begun) == 2
    assert talk.samples(b"\1", b"\0") == [[], [1]]
    assert talk.read(b"x", '{"eof": 1}')[-1] == Finish()
    warning = "the audio ends within a sample: 1 bytes are not used"
    assert [*talk.dialect.ended()] == [{"text": "", "warning": warning}]


@pytest.mark.parametrize(
    ("config", "warnings"),
    [
        ({}, []), ({"phrase_list": ["seven"]}, []),
        ({"phrase_list": ["seven", "[unk]", "☃", ""]}, ["'[unk]', '☃', ''"]),
        ({"spk": 1, "max_alternatives": 3}, ["no effect here: spk, max_alternatives"]),
    ],
)  # fmt: skip
def test_warnings_are_in_the_next_reply(
    server: Server, config: dict[str, Any], warnings: list[str]
) -> None:
    talk = configured(server, **config)
    (_, first), (_, second) = talk.read(AUDIO), talk.read(AUDIO)
    assert ("warning" in first) == bool(warnings)
    assert all(each in first["warning"] for each in warnings)
    assert "warning" not in second


def test_settings_that_a_call_with_audio_keeps(server: Server) -> None:
    talk = configured(server)
    talk.read(AUDIO, '{"config": {"sample_rate": 8000}}')
    with pytest.raises(UserError, match=r"config: the call has audio already; .* reset"):
        talk.read('{"config": {"words": false}}')


@pytest.mark.parametrize(
    "message",
    [
        '{"config": {"sample_rate": 1}}', "[]", "{", '{"config": {"words": "maybe"}}',
        '{"hello": 1}', '{"config": 1}', '{"eof": 0}', '{"config": {"sample_rate": 8000.5}}',
        '{"eof": 1, "reset": 1}', '{"config": {"phrase_list": "seven"}}', "{}",
    ],
)  # fmt: skip
def test_refusals(server: Server, message: str) -> None:
    with pytest.raises(UserError, match=r"expected|config"):
        Offline(Vosk(), server).read(message)
