"""POST /v1/audio/transcriptions, by the client that people have."""

import asyncio
import copy
import io
import re
import tempfile
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import soundfile
from starlette.datastructures import FormData, UploadFile

from asrkit.errors import UserError
from asrkit.runtime import Recognizer, formats
from asrkit.serve.dialects.openai_files import Transcription
from asrkit.serve.server import Limits, Server
from asrkit.terms import Terms
from tests.serve.running import serving

URL = "http://{}/v1/audio/transcriptions"
Recordings = list[tuple[Path, np.ndarray]]


def client_of(address: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0)


def test_openai(address: str, served: Recognizer, recordings: Recordings) -> None:
    client, (path, samples) = client_of(address), recordings[0]
    expected = served.transcribe(path)
    options = {"model": "small-en-alnum", "file": path}
    assert client.audio.transcriptions.create(**options).text == expected.text
    for name in ("text", "srt", "vtt"):
        found = client.audio.transcriptions.create(**options, response_format=name)
        recording = formats.Recording(expected.words, duration=len(samples) / 16000)
        form = "txt" if name == "text" else name
        assert found == formats.write(form, [recording])
    verbose = client.audio.transcriptions.create(
        **options, response_format="verbose_json", timestamp_granularities=["word", "segment"]
    )
    assert [(w.word, w.start, w.end) for w in verbose.words] == [w[:3] for w in expected.words]
    assert [(s.text, s.start, s.end) for s in verbose.segments] == [
        (s.text, s.spoken, s.spoken_end) for s in expected.segments
    ]
    assert verbose.duration == len(samples) / 16000
    assert all(-20 < s.avg_logprob <= 0 for s in verbose.segments)
    assert client.models.list().data[0].id == "small-en-alnum"


def test_refusals(
    address: str, recordings: Recordings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = ("a.flac", recordings[0][0].read_bytes())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    requests: list[tuple[dict[str, str], dict[str, tuple[str, bytes]], int, str]] = [
        ({}, {}, 400, "file"),
        ({}, {"file": ("a.wav", b"RIFF nothing")}, 400, "the file is not audio"),
        ({}, {"file": ("a.wav", b"\0" * 2_100_000)}, 413, "2 MB"),
        ({"model": "../../etc/passwd"}, {"file": good}, 404, "is not served: choose from"),
        ({}, {"file": good, "model": good}, 400, "Too many files"),
    ]
    for data, uploads, status, told in requests:
        answer = httpx.post(URL.format(address), data=data, files=uploads or None)
        assert answer.status_code == status, answer.text
        assert told in answer.json()["error"]["message"]
    assert not list(tmp_path.iterdir())


def form(**fields: Any) -> Transcription:
    """A request with a file and these fields; `_` at the end of a name is for []."""
    file = ("file", UploadFile(io.BytesIO(b"")))
    texts = [
        (re.sub("_$", "[]", name), each)
        for name, value in fields.items()
        for each in ([value] if isinstance(value, str) else value)
    ]
    return Transcription(FormData([file, *texts]))


@pytest.mark.parametrize(
    ("prompt", "left_out"),
    [("seven, Hello, a meeting!, nine", ["Hello", "a meeting!"]), ("Grüße", ["Grüße"]),
     ("seven,,nine, ", [])],
)  # fmt: skip
@pytest.mark.parametrize("field", ["prompt", "hotwords"])
def test_phrases_of_a_prompt_that_the_model_cannot_write_are_left_out_with_a_warning(
    server: Server, prompt: str, left_out: list[str], field: str
) -> None:
    wish = form(**{field: prompt}).wish
    assert [*wish.phrases] == [each.strip() for each in prompt.split(",") if each.strip()]
    warnings = "".join(asyncio.run(server.grant(wish)).warnings)
    assert [each for each in wish.phrases if repr(each) in warnings] == left_out


def test_warnings_are_a_header(address: str, server: Server, recordings: Recordings) -> None:
    path, _ = recordings[0]
    create = client_of(address).audio.transcriptions.with_raw_response.create
    found = create(model="small-en-alnum", file=path, prompt="☃, seven", temperature=0.4)
    said = ascii("the model cannot write '☃': left out of the preferred phrases")[1:-1]
    assert found.headers["x-asrkit-warning"] == f"{said}; no effect here: temperature"
    preferred = server.models["small-en-alnum"].recognizer.with_hotwords(["seven"])
    assert found.parse().text == preferred.transcribe(path).text
    assert "x-asrkit-warning" not in create(model="small-en-alnum", file=path).headers


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, ""), ({"temperature": "0.4", "include_": "logprobs"}, "temperature, include[]"),
        ({"timestamp_granularities_": "word"}, "timestamp_granularities[]"),
        ({"known_speaker_names_": "a", "stream": "FALSE"}, "known_speaker_names[]"),
        ({"vad_filter": "true"}, "vad_filter"),
        ({"known_speaker_names_": "a", "channels": "split"}, ""),
    ],
)  # fmt: skip
def test_fields_without_effect_are_said(fields: dict[str, Any], names: str) -> None:
    assert form(**fields).warnings == ([f"no effect here: {names}"] if names else [])


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"channels": "spilt"}, "channels: Input should be 'mix' or 'split'"),
        ({"channels": "split", "known_speaker_names_": ["a", "b\nc"]}, "known_speaker_names[].1"),
        ({"stream": "perhaps"}, "stream: "), ({"stream": "TRUE"}, "/v1/stream sends text as it"),
        ({"prompt": ["one", "two"]}, "prompt: Input should be a valid string"),
        ({"timestamp_granularities_": "letter"}, "should be 'segment' or 'word'"),
        ({"response_format": "srt2"}, "response_format: Input should be 'json', 'text', 'srt'"),
        ({"respnse_format": "srt"}, "respnse_format: Extra inputs are not permitted"),
        ({"model": [UploadFile(io.BytesIO(b""))]}, "model: Input should be a valid string"),
    ],
)  # fmt: skip
def test_fields_that_cannot_be(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=re.escape(told)):
        form(**fields)


def test_names_are_those_of_all_channels() -> None:
    request = form(channels="split", known_speaker_names_=["a"])
    decoding: Any = SimpleNamespace(warnings=[], seconds=1.0)
    with pytest.raises(UserError, match="2 channels, but 1 names"):
        request.response(decoding, [[], []])


@pytest.mark.parametrize(
    ("stated", "asked", "expected"),
    [
        (("de",), "", "de"), (("de",), "en", "de"), (("de", "fr"), "fr", "fr"), ((), "nl", "nl"),
        ((), "", "und"),
    ],
)  # fmt: skip
def test_verbose_json_names_the_language_of_the_model(
    served: Recognizer, stated: tuple[str, ...], asked: str, expected: str
) -> None:
    """That of the request chooses among several, and counts where the model states none."""
    model = copy.copy(served)
    model.terms = Terms(None, stated)
    request = form(language=asked)
    with closing(Server({"m": model})) as server:
        request.grant = asyncio.run(server.grant(request.wish))
    assert request.language_used == expected


def test_other_addresses_are_refused_in_openais_form(address: str, recordings: Recordings) -> None:
    client, (path, _) = client_of(address), recordings[0]
    with pytest.raises(openai.NotFoundError, match=r"nothing is at '/v1/audio/tr"):
        client.audio.translations.create(model="whisper-1", file=path)
    for method, where in (("GET", "chat/completions"), ("PUT", "audio/transcriptions/x%1b")):
        answer = httpx.request(method, f"http://{address}/v1/{where}", content=b"x" * 100)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
        assert answer.json()["error"]["message"].isprintable()


def test_a_file_that_is_too_long(served: Recognizer, recordings: Recordings) -> None:
    with serving(Server({"m": served}, Limits(call_s=0.5), token="ü")) as address:
        files = {"file": ("a.flac", recordings[0][0].read_bytes())}
        answer = httpx.post(URL.format(address), params={"token": "ü"}, files=files, timeout=60)
        assert answer.status_code == 413
        assert "at most 0" in answer.json()["error"]["message"]


def test_metrics_are_what_prometheus_reads(address: str, server: Server) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    text = httpx.get(f"http://{address}/metrics").text
    families = {each.name: each for each in text_string_to_metric_families(text)}
    assert families["asrkit_streams"].samples[0].value == server.streams == len(server.resumable)
    assert families["asrkit_audio_seconds"].type == "counter"


def test_the_length_of_a_cut_file_is_what_was_read(address: str, tmp_path: Path) -> None:
    """Its header states more, and a FLAC's decoder notices at the end only."""
    path = tmp_path / "x.flac"
    soundfile.write(path, np.random.default_rng(0).normal(0, 0.1, 48000), 16000)
    answers = []
    for data in (path.read_bytes(), path.read_bytes()[: path.stat().st_size * 6 // 10]):
        form = {"response_format": "verbose_json"}
        answers.append(httpx.post(URL.format(address), files={"file": data}, data=form, timeout=30))
    whole, cut = (answer.json()["duration"] for answer in answers)
    assert whole == 3.0
    assert 1.5 < cut < 2.0
    assert "is cut off" in answers[1].headers["X-Asrkit-Warning"]
