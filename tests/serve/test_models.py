"""Several models in one server: each protocol names one, and keeps to it."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from websockets.sync.client import connect

import asrkit
from asrkit import model_file
from asrkit.hub import Address
from asrkit.model_file import load_model
from asrkit.runtime import Recognizer, recognizer_of
from asrkit.serve.server import Limits, Server
from asrkit.terms import Terms
from asrkit.text import CharTokenizer
from tests.running import talkative_model
from tests.serve.running import connected, serving
from tests.serve.test_file_channels import file_of
from tests.serve.test_realtime import completed, talk, update
from tests.serve.test_stream import converse, start, text_of
from tests.serve.test_transcriptions import client_of

Recordings = list[tuple[Path, np.ndarray]]


@pytest.fixture(scope="module")
def models(served: Recognizer) -> dict[str, Recognizer]:
    """The second one shouts, in one pass."""
    loud = asrkit.load("small-en-alnum", chunk_size=8, postprocess=str.upper)
    return {"quiet": served, "loud": loud}


@pytest.fixture(scope="module")
def two(models: dict[str, Recognizer]) -> Iterator[str]:
    with serving(Server(models, Limits(streams=2))) as address:
        yield address


def test_they_are_listed(two: str) -> None:
    assert [each.id for each in client_of(two).models.list()] == ["quiet", "loud"]


def test_a_closed_vocabulary_is_listed(served: Recognizer) -> None:
    """A model that writes by letters has none: the control."""
    letters = CharTokenizer([chr(0x4E00 + i) for i in range(148)])
    other = served.with_decoding(served.decoding._replace(tokenizer=letters))
    with serving(Server({"small": served, "other": other})) as address:
        small, other = httpx.get(f"http://{address}/v1/models").json()["data"]
    assert len(small["words"]) == 148
    assert {"a", "z", "zero", "nine", "lights"} <= {*small["words"]}
    assert other["words"] is None


@pytest.mark.parametrize("name", [None, "quiet", "loud"])
def test_the_model_that_is_asked_for(
    two: str, models: dict[str, Recognizer], recordings: Recordings, name: str | None
) -> None:
    """The first if none is; another one's text is another one: the control."""
    path, samples = recordings[0]
    expected = models[name or "quiet"].transcribe(path).text
    assert expected.isupper() == (name == "loud")
    asked = {} if name is None else {"model": name}

    files = {"file": ("a.flac", path.read_bytes())}
    answer = httpx.post(f"http://{two}/v1/audio/transcriptions", data=asked, files=files)
    assert answer.json()["text"] == expected

    found = converse(start(two, **asked), [samples.tobytes()])
    assert found[0]["model"] == (name or "quiet")
    assert text_of(found) == expected

    session = {"format": {"type": "audio/pcm", "rate": 16000}, "turn_detection": None}
    session["transcription"] = asked
    assert completed(talk(two, session, [samples.tobytes()], commit=True)) == [expected]

    with connect(f"ws://{two}/vosk") as client:
        client.send(json.dumps({"config": {"sample_rate": 16000, **asked}}))
        client.send(samples.tobytes())
        texts = [json.loads(client.recv(timeout=10)).get("text", "")]
        client.send('{"eof": 1}')
        texts.append(json.loads(client.recv(timeout=10))["text"])
        assert " ".join(filter(None, texts)) == expected


def test_a_call_that_is_resumed_keeps_its_model(two: str, recordings: Recordings) -> None:
    _, samples = recordings[0]
    client = start(two, model="loud")
    client.send(samples[:8000].tobytes())
    started = json.loads(client.recv(timeout=10))
    client.socket.close()
    client = connected(f"ws://{two}/v1/stream")
    asked = {"type": "resume", "id": started["id"], "token": started["token"]}
    client.send(json.dumps(asked))
    again = json.loads(client.recv(timeout=10))
    assert again["model"] == "loud"
    assert text_of(converse(client, [samples[again["ack"] :].tobytes()])).isupper()


@pytest.mark.parametrize("name", ["louder", "/etc/passwd", "", "x" * 150, "hf://me/tiny"])
def test_other_models_are_refused(two: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a client writes there, the hub is not asked for it."""
    asked: list[str] = []

    def find(address: Address) -> None:
        asked.append(str(address))
        raise asrkit.UserError("asked")

    monkeypatch.setattr(model_file, "find", find)
    told, shown = "is not served: choose from quiet, loud", name[:20]
    files = {"file": ("a.flac", b"")}
    answer = httpx.post(f"http://{two}/v1/audio/transcriptions", data={"model": name}, files=files)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (404, "model_not_found")
    messages = [error["message"]]
    messages.append(converse(start(two, model=name), [])[-1]["message"])
    with connect(f"ws://{two}/vosk") as client:
        client.send(json.dumps({"config": {"model": name}}))
        client.send(b"\0\0")
        messages.append(json.loads(client.recv(timeout=10))["error"])
    with connect(f"ws://{two}/v1/realtime?intent=transcription") as client:
        client.recv(timeout=10)
        transcription = {"audio": {"input": {"transcription": {"model": name}}}}
        event = {"type": "session.update", "session": {"type": "transcription", **transcription}}
        client.send(json.dumps(event))
        messages.append(json.loads(client.recv(timeout=10))["error"]["message"])
    for message in messages:
        assert told in message
        assert shown in message
        assert len(message) < 200
    assert asked == []
    with pytest.raises(asrkit.UserError, match="asked"):  # the control: so it would be noticed
        asrkit.load("hf://me/tiny")


@pytest.mark.parametrize("name", ["whisper-1", "gpt-4o-transcribe", "gpt-4o-mini-transcribe"])
def test_a_model_of_openai_is_the_first_one_and_that_is_said(
    two: str, models: dict[str, Recognizer], recordings: Recordings, name: str
) -> None:
    path, samples = recordings[0]
    expected = models["quiet"].transcribe(path).text
    create = client_of(two).audio.transcriptions.with_raw_response.create
    found = create(model=name, file=path)
    assert found.parse().text == expected
    told = f"the model '{name}' is not served: quiet is used"
    assert found.headers["x-asrkit-warning"] == told
    assert "x-asrkit-warning" not in create(model="quiet", file=path).headers

    session = {"format": {"type": "audio/pcm", "rate": 16000}, "turn_detection": None}
    session["transcription"] = {"model": name}
    events = talk(two, session, [samples.tobytes()], commit=True)
    assert completed(events) == [expected]
    assert [each["message"] for each in events if each["type"] == "warning"] == [told]
    updated = next(each for each in events if each["type"] == "session.updated")
    assert updated["session"]["audio"]["input"]["transcription"]["model"] == "quiet"

    url = f"ws://{two}/v1/realtime?intent=transcription&model="
    for asked, model in ((name, "quiet"), ("loud", "loud")):
        with connect(url + asked) as client:
            created = json.loads(client.recv(timeout=10))
            assert created["session"]["audio"]["input"]["transcription"]["model"] == model
    with connect(url + "nobody") as client:
        error = json.loads(client.recv(timeout=10))["error"]
        assert "model 'nobody' is not served: choose from" in error["message"]


def test_a_model_of_that_name_comes_first(served: Recognizer, recordings: Recordings) -> None:
    path, _ = recordings[0]
    loud = served.with_decoding(served.decoding._replace(postprocess=str.upper))
    with serving(Server({"quiet": served, "whisper-1": loud})) as address:
        create = client_of(address).audio.transcriptions.with_raw_response.create
        found = create(model="whisper-1", file=path)
        assert found.parse().text.isupper()
        assert "x-asrkit-warning" not in found.headers


def test_streams_are_those_of_all_models(two: str) -> None:
    """Two at most: one of each leaves none."""
    calls = [start(two, model=name) for name in ("quiet", "loud")]
    for call in calls:
        call.recv(timeout=10)
    with connect(f"ws://{two}/v1/stream") as third:
        third.send('{"type": "start", "model": "loud"}')
        assert json.loads(third.recv(timeout=10))["reason"] == "streams"
    figures = httpx.get(f"http://{two}/metrics").text
    assert 'asrkit_streams{model="quiet"} 1.0' in figures
    assert 'asrkit_streams{model="loud"} 1.0' in figures
    for call in calls:
        converse(call, [])


def test_an_alias_is_the_model_itself(
    models: dict[str, Recognizer], recordings: Recordings
) -> None:
    """No second worker, no warning, and another alias another text: the control."""
    path, _ = recordings[0]
    named = {"quiet": models["quiet"], "whisper-1": models["loud"], "loud": models["loud"]}
    server = Server(named, Limits(streams=2))
    assert server.models["whisper-1"] is server.models["loud"]
    with serving(server) as address:
        assert [each.id for each in client_of(address).models.list()] == [*named]
        for name, expected, warned in (("whisper-1", "loud", False), ("gpt-4o", "quiet", True)):
            answer = httpx.post(
                f"http://{address}/v1/audio/transcriptions",
                data={"model": name}, files={"file": ("a.flac", path.read_bytes())},
            )  # fmt: skip
            assert answer.json()["text"] == models[expected].transcribe(path).text
            assert ("X-Asrkit-Warning" in answer.headers) == warned


@pytest.fixture(scope="module")
def languages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of three models; `second` and `third` state German."""
    file = load_model(talkative_model(tmp_path_factory.mktemp("models") / "m.safetensors"))
    stated = {"first": ("en",), "second": ("fr", "de"), "third": ("de",)}
    models = {
        name: recognizer_of(file._replace(terms=Terms(None, codes)))
        for name, codes in stated.items()
    }
    with serving(Server(models)) as address:
        yield address


LANGUAGES = [
    (None, "de", "second"), (None, "de-CH", "second"), (None, "en", "first"), (None, "", "first"),
    (None, "nl", "first"), ("whisper-1", "de", "second"), ("whisper-1", "", "first"),
    ("third", "de", "third"), ("first", "de", "first"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "language", "expected"), LANGUAGES)
def test_the_language_selects_if_the_name_does_not(
    languages: str, model: str | None, language: str, expected: str
) -> None:
    named = {} if model is None else {"model": model}
    asked = {**named, "language": language}
    wav = file_of(np.zeros(1600, np.int16))
    url = f"http://{languages}/v1/listen"
    info = httpx.post(url, params=asked, content=wav[1]).json()["metadata"]["model_info"]
    assert [each["name"] for each in info.values()] == [expected]

    url = f"http://{languages}/v1/audio/transcriptions"
    answer = httpx.post(url, data={**asked, "response_format": "verbose_json"}, files={"file": wav})
    stated = {"first": "en", "second": "de", "third": "de"}[expected]
    assert answer.json()["language"] == stated
    replaced = f"the model '{model}' is not served: {expected} is used"
    warning = answer.headers.get("x-asrkit-warning", "")
    assert (replaced in warning) == (model == "whisper-1")

    name = f"&model={model}" if model else ""
    with connect(f"ws://{languages}/v1/realtime?intent=transcription{name}") as client:
        client.recv(timeout=10)
        events = update(client, transcription={"language": language})
        updated = next(each for each in events if each["type"] == "session.updated")
        found = updated["session"]["audio"]["input"]["transcription"]["model"]
        assert found == (expected if model else None)
        told = [each["message"] for each in events if each["type"] == "warning"]
        assert (replaced in told) == (model == "whisper-1")
