"""The model and the recogniser that a client gets: by name, by language, by its options."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest
from starlette.datastructures import QueryParams

import asrkit
from asrkit import Endpointer
from asrkit.model_file import load_model
from asrkit.runtime import Recognizer, recognizer_of
from asrkit.serve.dialects.openai_files import OPENAI_MODEL
from asrkit.serve.dialects.openai_realtime import Realtime
from asrkit.serve.server import Grant, Limits, Server, Wish
from asrkit.terms import Terms
from asrkit.text import END_OF_TURN, CharTokenizer
from tests.running import talkative_model
from tests.serve.offline import Offline
from tests.serve.running import Recordings, connected, serving
from tests.serve.test_stream import answers, converse, start, text_of
from tests.serve.test_transcriptions import client_of
from tests.test_model_file import a_file


def granted(server: Server, *wish: Any, **more: Any) -> Grant:
    return asyncio.run(server.grant(Wish(*wish, **more)))


@pytest.fixture(scope="module")
def loud(served: Recognizer) -> Recognizer:
    """It shouts, in one pass."""
    return asrkit.load("small-en-alnum", chunk_size=8, postprocess=str.upper)


@pytest.fixture(scope="module")
def models(served: Recognizer, loud: Recognizer) -> Iterator[Server]:
    with closing(Server({"quiet": served, "gpt-loud": loud}, Limits(streams=2))) as server:
        yield server


@pytest.fixture(scope="module")
def address(models: Server) -> Iterator[str]:
    with serving(models) as address:
        yield address


def test_a_closed_vocabulary_is_listed(served: Recognizer) -> None:
    """A model that writes by letters has none: the control."""
    other = served.with_decoding(served.decoding._replace(tokenizer=CharTokenizer(list("äb c"))))
    assert len(served.words or ()) == 148
    assert {"a", "z", "zero", "nine", "lights"} <= {*(served.words or ())}
    assert other.words is None


@pytest.mark.parametrize("name", ["quiet", "gpt-loud"])
def test_the_model_that_is_asked_for(
    address: str, models: Server, recordings: Recordings, name: str
) -> None:
    """Its text, also after the call was resumed, and another one's text is another one."""
    path, samples = recordings[0]
    expected = models.models[name].recognizer.transcribe(path).text
    assert expected.isupper() == (name == "gpt-loud")
    url, files = f"http://{address}/v1/audio/transcriptions", {"file": path.read_bytes()}
    answer = httpx.post(url, data={"model": name}, files=files, timeout=60)
    assert answer.json()["text"] == expected
    client = start(address, model=name)
    started = json.loads(client.recv(timeout=10))
    client.send(samples[:8000].tobytes())
    client.socket.close()
    client = connected(f"ws://{address}/v1/stream")
    asked = {"type": "resume", "id": started["id"], "token": started["token"]}
    client.send(json.dumps(asked))
    again = json.loads(client.recv(timeout=10))
    assert (started["model"], again["model"]) == (name, name)
    assert text_of(converse(client, [samples[again["ack"] :].tobytes()])) == expected


@pytest.mark.parametrize("name", ["louder", "/etc/passwd", "", "x" * 150, "hf://me/tiny"])
def test_other_models_are_refused(models: Server, name: str) -> None:
    with pytest.raises(
        asrkit.UserError, match="is not served: choose from quiet, gpt-loud"
    ) as caught:
        granted(models, name, OPENAI_MODEL)
    assert name[:20] in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("name", "expected", "is_said"),
    [
        (None, "quiet", False), ("gpt-loud", "gpt-loud", False), ("whisper-1", "quiet", True),
        ("gpt-4o-mini-transcribe", "quiet", True),
    ],
)  # fmt: skip
def test_a_model_of_openai_is_the_first_one_and_that_is_said(
    models: Server, name: str | None, expected: str, is_said: bool
) -> None:
    told = [f"the model '{name}' is not served: {expected} is used"] if is_said else []
    grant = granted(models, name, OPENAI_MODEL)
    assert (grant.model, grant.warnings) == (models.models[expected], told)
    query = {"intent": "transcription"} | ({} if name is None else {"model": name})
    session, *warnings = Offline(Realtime(QueryParams(query), Endpointer(400)), models).said
    shown = session["session"]["audio"]["input"]["transcription"]["model"]
    assert shown == expected
    assert [each["message"] for each in warnings] == told


def test_streams_are_those_of_all_models(address: str) -> None:
    """Two at most: one of each leaves none."""
    assert [each.id for each in client_of(address).models.list()] == ["quiet", "gpt-loud"]
    calls = [start(address, model=name) for name in ("quiet", "gpt-loud")]
    for call in calls:
        call.recv(timeout=10)
    assert answers(start(address, model="gpt-loud"))[-1]["reason"] == "streams"
    figures = httpx.get(f"http://{address}/metrics").text
    assert 'asrkit_streams{model="quiet"} 1.0' in figures
    assert 'asrkit_streams{model="gpt-loud"} 1.0' in figures
    for call in calls:
        converse(call, [])


@pytest.fixture(scope="module")
def languages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of models; `second` and `third` state German, and `none` no language."""
    file = load_model(talkative_model(tmp_path_factory.mktemp("models") / "m.safetensors"))
    stated = {"first": ("en",), "second": ("fr", "de"), "third": ("de",), "none": ()}
    models = {
        name: recognizer_of(file._replace(terms=Terms(None, codes)))
        for name, codes in stated.items()
    }
    with closing(Server(models)) as server:
        yield server


LANGUAGES = [
    (None, "de-CH", "second", ""), (None, "en", "first", ""), (None, "", "first", ""),
    (None, "nl", "first", "the model recognises en"),
    ("whisper-1", "de", "second", "'whisper-1' is not served: second is used"),
    ("third", "de", "third", ""), ("none", "de", "none", "does not state its languages"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "language", "expected", "warning"), LANGUAGES)
def test_the_language_selects_if_the_name_does_not(
    languages: Server, model: str | None, language: str, expected: str, warning: str
) -> None:
    grant = granted(languages, model, OPENAI_MODEL, language)
    assert grant.model.name == expected
    assert bool(grant.warnings) == bool(warning)
    assert warning in "; ".join(grant.warnings)


OWN = Endpointer(800, max_segment_ms=1500)
ENDS: list[tuple[Endpointer | None, dict[str, Any], Endpointer | None]] = [
    (OWN, {}, OWN), (OWN, {"pause_ms": 200}, OWN.changed(pause_ms=200)),
    (OWN, {"pause_ms": 0}, OWN.changed(pause_ms=None)), (None, {"pause_ms": 200}, Endpointer(200)),
    (None, {"pause_ms": 0}, None), (OWN, {"end_of_turn": "high"}, OWN.changed(end_of_turn="high")),
    (OWN, {"pause_ms": 4000, "end_of_turn": "off"}, OWN.changed(pause_ms=4000)),
]  # fmt: skip


@pytest.fixture(scope="module")
def labelled() -> Recognizer:
    return recognizer_of(a_file(CharTokenizer(list("abc")).with_label(END_OF_TURN)))


@pytest.mark.parametrize(("own", "asked", "expected"), ENDS)
def test_the_callers_ends_leave_the_servers_other_options(
    labelled: Recognizer, own: Endpointer | None, asked: dict[str, Any], expected: Endpointer | None
) -> None:
    model = labelled.with_decoding(labelled.decoding._replace(endpointer=own))
    with closing(Server({"m": model})) as server:
        found = granted(server, **asked).recognizer.decoding.endpointer
    assert (found and vars(found)) == (expected and vars(expected))


def test_hotwords_need_a_search_that_the_server_can_be_started_with(models: Server) -> None:
    """Also the page shows this error to who cannot know the options of a search."""
    option = "start asrkit serve with --second-search prefix_beam"
    (warning,) = granted(models, "gpt-loud", phrases=["seven"]).warnings
    assert option in warning
    with pytest.raises(asrkit.UserError, match=f"hotwords: .*{option}"):
        granted(models, "gpt-loud", hotwords=["seven"])


def test_ends_of_turns_need_a_label(models: Server) -> None:
    with pytest.raises(asrkit.UserError, match="end_of_turn low: this model has no label"):
        granted(models, end_of_turn="low")
