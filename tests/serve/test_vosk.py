"""/vosk: the flow of Vosk's published clients."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soxr
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import asrkit
from asrkit.errors import shown
from asrkit.runtime import Recognizer
from asrkit.serve.server import Server
from tests.serve.running import serving

Recordings = list[tuple[Path, np.ndarray]]


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
        recordings[:3], ({}, {"words": True}, {"words": True, "max_alternatives": 0}), strict=True
    ):
        expected = served.transcribe(path)
        replies = published(address, {"sample_rate": 16000, **config}, 16000, samples.tobytes())
        assert all(("partial" in each) != ("text" in each) for each in replies)
        assert texts_of(replies[-1:]) or texts_of(replies) == [s.text for s in expected.segments]
        assert " ".join(texts_of(replies)) == expected.text
        words = [word for each in replies for word in each.get("result", [])]
        assert [(w["word"], w["start"], w["end"]) for w in words] == [
            (w.text, w.start, w.end) for w in expected.words
        ]


def test_without_a_config_samples_are_of_8000_hz(
    address: str, served: Recognizer, recordings: Recordings
) -> None:
    for _, samples in recordings[:3]:
        half = soxr.resample(samples, 16000, 8000).astype("<i2")
        replies = published(address, None, 8000, half.tobytes())
        assert " ".join(texts_of(replies)) == served.transcribe(half, 8000).text


def test_a_reset_has_the_final_text_as_its_reply(
    address: str, served: Recognizer, recordings: Recordings
) -> None:
    """Calls follow each other on one connection: each has the text of its own recording."""
    with connect(f"ws://{address}/vosk") as client:
        client.send('{"config": {"sample_rate": 16000}}')
        for number, (path, samples) in enumerate(recordings[:3]):
            replies = []
            for start in range(0, len(samples), 3200):
                client.send(samples[start : start + 3200].tobytes())
                replies.append(json.loads(client.recv(timeout=10)))
            client.send('{"eof" : 1}' if number == 2 else '{"reset" : 1}')
            replies.append(json.loads(client.recv(timeout=10)))
            assert all(("partial" in each) != ("text" in each) for each in replies)
            assert " ".join(texts_of(replies)) == served.transcribe(path).text


@pytest.mark.parametrize(
    "phrases",
    [
        ["seven", "[unk]"], ["[unk]"], ["Hello, a meeting!", "☃", ""], ["x" * 1001, "seven"],
        ["zero one two three four five six seven eight nine oh"],
    ],
)  # fmt: skip
def test_phrases_that_the_model_cannot_write_are_left_out_with_a_warning(
    address: str, served: Recognizer, recordings: Recordings, phrases: list[str]
) -> None:
    path, samples = recordings[0]
    config = {"sample_rate": 16000, "phrase_list": phrases}
    replies = published(address, config, 16000, samples.tobytes())
    good = [each for each in phrases if each.isascii() and each.replace(" ", "").isalpha()]
    good = [each for each in good if len(each) <= 1000]
    assert " ".join(texts_of(replies)) == served.with_hotwords(good).transcribe(path).text
    assert all("warning" not in each for each in replies[1:])
    for each in phrases:
        assert (shown(each, 40) in replies[0].get("warning", "")) == (each not in good)


def test_audio_that_ends_within_a_sample_is_said(
    address: str, served: Recognizer, recordings: Recordings
) -> None:
    path, samples = recordings[0]
    *others, last = published(address, {"sample_rate": 16000}, 16000, samples.tobytes() + b"x")
    assert last["warning"] == "the audio ends within a sample: 1 bytes are not used"
    assert all("warning" not in each for each in others)
    assert " ".join(texts_of([*others, last])) == served.transcribe(path).text


def test_what_has_no_effect_is_said(recordings: Recordings) -> None:
    """Greedy search takes no phrases and ranks no texts; Vosk's servers have other settings."""
    greedy = asrkit.load("small-en-alnum", chunk_size=8)
    path, samples = recordings[0]
    with serving(Server({"m": greedy})) as address:
        config = {"sample_rate": 16000, "phrase_list": ["seven"], "max_alternatives": 3}
        first, *others = published(address, {**config, "spk": 1}, 16000, samples.tobytes())
        for each in ("no phrases are preferred", "--second-search", "max_alternatives", "'spk'"):
            assert each in first["warning"]
        assert all("warning" not in each for each in others)
        assert others[-1]["alternatives"][0]["text"] == greedy.transcribe(path).text
        control = published(address, {"sample_rate": 16000}, 16000, samples.tobytes())
        assert all("warning" not in each for each in control)


def test_configs_change_what_they_name(
    address: str, served: Recognizer, recordings: Recordings
) -> None:
    """Several configs add up, and one that a call with audio cannot follow is named."""
    path, samples = recordings[0]
    for after, problem in (
        ({"words": False}, None),
        ({"sample_rate": 16000}, None),
        ({"sample_rate": 8000}, "config.sample_rate: the call has audio already"),
        ({"phrase_list": ["seven"]}, "config.phrase_list: the call has audio already"),
        ({"model": "small-en-alnum"}, "config.model: the call has audio already"),
    ):
        with connect(f"ws://{address}/vosk") as client:
            client.send('{"config": {"sample_rate": 16000}}')
            client.send('{"config": {"words": true}}')
            client.send(samples.tobytes())
            client.recv(timeout=10)
            client.send(json.dumps({"config": after}))
            if problem is not None:
                found = json.loads(client.recv(timeout=10))
                assert found["error"].startswith(problem)
                assert "reset" in found["error"]
                continue
            client.send('{"eof" : 1}')
            found = json.loads(client.recv(timeout=10))
            assert found["text"] == served.transcribe(path).text
            assert ("result" in found) == ("words" not in after)


def test_refusals(address: str) -> None:
    for message in (
        '{"config": {"model": "/etc/passwd"}}', '{"config": {"sample_rate": 1}}', "[]", "{",
        '{"config": {"words": "maybe"}}', '{"hello": 1}', '{"config": 1}', '{"eof": 0}',
        '{"config": {"sample_rate": 8000.5}}', '{"eof": 1, "reset": 1}',
        '{"config": {"phrase_list": "seven"}}', "{}",
    ):  # fmt: skip
        with connect(f"ws://{address}/vosk") as client:
            client.send(message)
            assert "error" in json.loads(client.recv(timeout=10))


def test_words_and_alternatives(address: str, served: Recognizer, recordings: Recordings) -> None:
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
            client.send(samples.tobytes())
            client.recv(timeout=10)
            client.send('{"eof": 1}')
            assert json.loads(client.recv(timeout=10)) == found
