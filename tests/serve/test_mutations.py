"""Whatever clients send, the server goes on, and their neighbours have their texts."""

import logging
import random
import threading
from contextlib import suppress

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from asrkit.runtime import Recognizer
from asrkit.serve.server import Limits, Server
from tests.running import wait_until
from tests.serve.running import Recordings, serving
from tests.serve.test_dialects import (
    CLEAR,
    COMMIT,
    MARK,
    STOP,
    audio,
    change,
    config,
    media,
    of,
    start,
)
from tests.serve.test_stream import converse, in_bytes, text_of
from tests.serve.test_stream import start as call

pytestmark = pytest.mark.usefixtures("collected")  # texts are nested deeply
AUDIO = b"\x10\x20" * 800
CONVERSATIONS: dict[str, list[str | bytes]] = {
    "/v1/stream": [
        of(type="start", encoding="pcm_s16le", hotwords=["seven"]), AUDIO, of(type="commit"), AUDIO,
        of(type="resume", id="abc", token="def", finals=0), of(type="end"),
    ],
    "/v1/realtime?intent=transcription": [
        change(format={"type": "audio/pcm", "rate": 24000}, turn_detection=None), audio(AUDIO),
        COMMIT, CLEAR,
    ],
    "/vosk": [config(words=True, phrase_list=["seven"]), AUDIO, of(reset=1), AUDIO, of(eof=1)],
    "/v1/listen?encoding=mulaw&sample_rate=8000&channels=2&multichannel=true": [
        AUDIO, of(type="KeepAlive"), of(type="Finalize"), AUDIO, of(type="CloseStream"),
    ],
    "/twilio": [start("inbound", "outbound"), media("AAECAwQFBgc="), MARK, STOP],
}  # fmt: skip
VALUES = ["null", "-1", "1e999", "[]", "{}", '""', "true", '"' + "x" * 5000 + '"', "[" * 2000]


def mutated(message: str | bytes, draw: random.Random) -> str | bytes:
    """A message with something else in it."""
    if isinstance(message, bytes):
        return draw.choice([message[: draw.randrange(len(message))], message * 50, b""])
    kind = draw.randrange(5)
    place = draw.randrange(len(message))
    if kind == 0:
        return message[:place]
    if kind == 1:
        return message[:place] + chr(draw.choice([0, 34, 0x2028, 0x1F600])) + message[place + 1 :]
    if kind == 2:  # another value after a colon
        colons = [i for i, each in enumerate(message) if each == ":"]
        head = message[: draw.choice(colons) + 1]
        return f"{head} {draw.choice(VALUES)}}}"
    if kind == 3:
        return draw.choice([message.encode(), message + message, message.upper()])
    return draw.choice(VALUES)


def attack(address: str, seed: int, count: int) -> None:
    """Connections that send mutated messages among good ones."""
    draw = random.Random(seed)
    sent = 0
    while sent < count:
        path, good = draw.choice(list(CONVERSATIONS.items()))
        with suppress(ConnectionClosed, OSError), connect(f"ws://{address}{path}") as client:
            for message in good:
                for _ in range(draw.randrange(3)):
                    client.send(mutated(message, draw))
                    sent += 1
                client.send(message)
            with suppress(TimeoutError):
                while True:
                    client.recv(timeout=0.02)


@pytest.mark.parametrize("count", [150, pytest.param(10_000, marks=pytest.mark.slow)])
def test_nothing_that_is_sent_matters_to_others(
    served: Recognizer,
    recordings: Recordings,
    count: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server({"m": served}, Limits(resume_s=0.5))
    with serving(server) as address:
        attackers = [
            threading.Thread(target=attack, args=(address, seed, count // 4)) for seed in range(4)
        ]
        for attacker in attackers:
            attacker.start()
        texts, rounds = {path: served.transcribe(path).text for path, _ in recordings}, 0
        while rounds == 0 or any(attacker.is_alive() for attacker in attackers):
            path, samples = recordings[rounds % len(recordings)]
            assert text_of(converse(call(address), list(in_bytes(samples, rounds)))) == texts[path]
            rounds += 1
        assert httpx.get(f"http://{address}/healthz").text == "ok\n"
        wait_until(lambda: not server.calls, 60.0)
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []  # a traceback
