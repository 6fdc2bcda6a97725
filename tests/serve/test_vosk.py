"""/vosk: the flow of Vosk's published clients."""

import json
from pathlib import Path

import numpy as np
from websockets.sync.client import connect

from asrkit.runtime import Recognizer


def test_the_flow_of_published_clients(
    address: str, served: Recognizer, recordings: list[tuple[Path, np.ndarray]]
) -> None:
    """As alphacep's test.py: config, packets of 200 ms, each with one reply, eof."""
    with connect(f"ws://{address}/vosk") as client:
        for number, (path, samples) in enumerate(recordings[:3]):
            if number == 0:
                client.send('{"config": {"sample_rate": 16000}}')
                client.recv(timeout=10)
            replies = []
            for start in range(0, len(samples), 3200):
                client.send(samples[start : start + 3200].tobytes())
                replies.append(json.loads(client.recv(timeout=10)))
            last = number == 2
            client.send('{"eof": 1}' if last else '{"reset": 1}')
            replies.append(json.loads(client.recv(timeout=10)))
            assert all(("partial" in each) != ("text" in each) for each in replies)
            expected = served.transcribe(path)
            texts = [each["text"] for each in replies if each.get("text")]
            if last:
                assert " ".join(texts) == expected.text
                words = [word for each in replies for word in each.get("result", [])]
                assert [(w["word"], w["start"], w["end"]) for w in words] == [
                    (w.text, w.start, w.end) for w in expected.words
                ]
            else:
                assert expected.text.startswith(" ".join(texts))


def test_refusals(address: str) -> None:
    for message in (
        '{"config": {"model": "/etc/passwd"}}', '{"config": {"sample_rate": 1}}', "[]", "{",
        '{"config": {"words": "maybe"}}', '{"hello": 1}',
    ):  # fmt: skip
        with connect(f"ws://{address}/vosk") as client:
            client.send(message)
            assert "error" in json.loads(client.recv(timeout=10))


def test_words_and_alternatives(
    address: str, served: Recognizer, recordings: list[tuple[Path, np.ndarray]]
) -> None:
    path, samples = recordings[0]
    expected = served.transcribe(path).segments[0]
    for config, found in (
        ({"words": False}, {"text": expected.text}),
        (
            {"max_alternatives": 2},
            {
                "alternatives": [
                    {"text": each.text, "confidence": each.score} for each in expected.nbest[:2]
                ]
            },
        ),
    ):
        with connect(f"ws://{address}/vosk") as client:
            client.send(json.dumps({"config": {"sample_rate": 16000, **config}}))
            assert client.recv(timeout=10) == "{}"
            client.send(samples.tobytes())
            client.recv(timeout=10)
            client.send('{"eof": 1}')
            assert json.loads(client.recv(timeout=10)) == found
