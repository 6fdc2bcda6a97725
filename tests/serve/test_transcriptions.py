"""Files over HTTP: OpenAI's address by its own client, and the channels of a file."""

import asyncio
import copy
import io
import re
import tempfile
from contextlib import closing
from pathlib import Path
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
from tests.serve.running import Recordings, call_of, serving, spans, spoken

URL = "http://{}/v1/audio/transcriptions"


def client_of(address: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0)


def file_of(samples: np.ndarray, form: str = "wav") -> tuple[str, bytes]:
    file = io.BytesIO()
    soundfile.write(file, samples, 16000, format=form)
    return f"call.{form}", file.getvalue()


def test_openai(address: str, served: Recognizer, recordings: Recordings) -> None:
    """One channel; a file's mix; and each channel as alone, in every format."""
    call = call_of(recordings, 1, 2)
    late = np.zeros((40_000, 1), np.int16)  # the first speaker begins later
    first, second = np.concatenate([late, call[:, :1]]), np.concatenate([call[:, 1:], late])
    call = np.concatenate([first, second], axis=1)
    client, alone = client_of(address), [served.transcribe(each) for each in call.T]
    assert alone[0].segments[0].start == 0.0  # control: its audio begins before its words
    assert alone[0].segments[0].spoken > 2.5
    mixed, seconds = served.transcribe(call), len(call) / 16000
    for results, fields in (([mixed], {}), (alone, {"channels": "split"})):
        keys: list[dict[str, Any]] = [
            {"channel": number, "speaker": f"channel {number}"} if fields else {}
            for number in range(len(results))
        ]
        written = [
            formats.Recording(result.words, duration=seconds, **own)
            for result, own in zip(results, keys, strict=True)
        ]

        def created(form: str, fields: dict[str, str] = fields, **more: Any) -> Any:
            create: Any = client.audio.transcriptions.create
            more |= {"response_format": form, "extra_body": fields}
            return create(model="small-en-alnum", file=file_of(call), **more)

        for form in ("text", "srt", "vtt"):
            assert created(form) == formats.write("txt" if form == "text" else form, written)
        turns = formats.passages_as_json(written) if fields else []
        found = created("json")
        assert found.text == (" ".join(turn["text"] for turn in turns) or mixed.text)
        assert found.to_dict().get("turns", []) == turns
        verbose = created("verbose_json", timestamp_granularities=["word", "segment"])
        assert verbose.duration == seconds
        assert all(-20 < s.avg_logprob <= 0 for s in verbose.segments)
        starts = [each.start for each in verbose.segments]
        assert starts == sorted(starts)
        for result, own in zip(results, keys, strict=True):

            def is_own(each: Any, own: dict[str, Any] = own) -> bool:
                return own.items() <= each.to_dict().items()

            words = [(w.word, w.start, w.end) for w in filter(is_own, verbose.words)]
            assert words == spans(result.words)
            segments = [(s.text, s.start, s.end) for s in filter(is_own, verbose.segments)]
            assert [each for each in segments if each[0]] == spoken(result.segments)


def test_channels_are_streams(served: Recognizer) -> None:
    """A file with more of them than the server or a client may have is refused."""
    server = Server({"m": served}, Limits(streams=2))
    with serving(server) as address:
        for channels, status in ((2, 200), (3, 503), (9, 400)):
            files = {"file": file_of(np.zeros((1600, channels), np.int16))}
            answer = httpx.post(URL.format(address), data={"channels": "split"}, files=files)
            assert answer.status_code == status, answer.text
        assert "at most 8 channels can be split, the file has 9" in answer.text
        assert len(server.calls) == 0


def kind(text: str) -> dict[str, str]:
    return {"content-type": text}


MULTI = kind("multipart/form-data; boundary=x")
GOOD = ("a.wav", file_of(np.zeros(1600))[1])
REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({}, 400, "file"),
    ({"files": {"file": ("a.wav", b"RIFF nothing")}}, 400, "the file is not audio"),
    ({"files": {"file": ("a.wav", bytes(2_100_000))}}, 413, "2 MB"),
    ({"files": {"file": GOOD}, "data": {"model": "../x"}}, 404, "is not served: choose from"),
    ({"files": {"file": GOOD, "model": GOOD}}, 400, "Too many files"),
    ({"content": b"{}", "headers": kind("application/json")}, 400, "multipart/form-data"),
    ({"data": {str(i): "a" for i in range(9999)}}, 400, "multipart"),
    ({"headers": kind("multipart/form-data")}, 400, "boundary"),
    ({"content": b"--x\r\ngarbage", "headers": MULTI}, 400, ""),
    ({"content": b'--x\r\ncontent-disposition: form-data; name="a"\r\n\r\nb\r\n' * 101,
      "headers": MULTI}, 400, "fields"),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "status", "told"), REFUSED)
def test_refusals(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_: dict[str, Any],
    status: int, told: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    answer = httpx.post(URL.format(address), **request_)
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


def test_phrases_are_separated_by_commas() -> None:
    fields = {"prompt": "seven,,a meeting!, ", "hotwords": "nine", "keywords_": ["oh", "", "x y"]}
    assert form(**fields).wish.phrases == ["seven", "a meeting!", "nine", "oh", "x y"]


def test_warnings_are_a_header(address: str, server: Server, recordings: Recordings) -> None:
    path, _ = recordings[0]
    create = client_of(address).audio.transcriptions.with_raw_response.create
    chunking: Any = {"type": "server_vad", "threshold": 0.5}  # a field for each key
    found = create(
        model="small-en-alnum", file=path, prompt="☃, seven", chunking_strategy=chunking,
        extra_body={"keywords": ["eight"] * 30, "languages": ["en", "de"]},
    )  # fmt: skip
    said = ascii("the model cannot write '☃': left out of the preferred phrases")[1:-1]
    unused = "chunking_strategy[type], chunking_strategy[threshold], languages[]"
    assert found.headers["x-asrkit-warning"] == f"{said}; no effect here: {unused}"
    preferred = server.models["small-en-alnum"].recognizer.with_hotwords(["seven", "eight"])
    assert found.parse().text == preferred.transcribe(path).text
    assert "x-asrkit-warning" not in create(model="small-en-alnum", file=path).headers


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, ""), ({"temperature": "0.4", "include_": "logprobs"}, "temperature, include[]"),
        ({"timestamp_granularities_": "word"}, "timestamp_granularities[]"),
        ({"known_speaker_names_": "a", "stream": "FALSE"}, "known_speaker_names[]"),
        ({"vad_filter": "true"}, "vad_filter"),
    ],
)  # fmt: skip
def test_fields_without_effect_are_said(fields: dict[str, Any], names: str) -> None:
    assert form(**fields).warnings == ([f"no effect here: {names}"] if names else [])


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"channels": "spilt"}, "channels: Input should be 'mix' or 'split'"),
        ({"stream": "perhaps"}, "stream: "), ({"stream": "TRUE"}, "/v1/stream sends text as it"),
        ({"prompt": ["one", "two"]}, "prompt: Input should be a valid string"),
        ({"timestamp_granularities_": "letter"}, "should be 'segment' or 'word'"),
        ({"respnse_format": "srt"}, "respnse_format: Extra inputs are not permitted"),
        ({"model": [UploadFile(io.BytesIO(b""))]}, "model: Input should be a valid string"),
    ],
)  # fmt: skip
def test_fields_that_cannot_be(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=re.escape(told)):
        form(**fields)


@pytest.mark.parametrize(
    ("stated", "asked", "expected"),
    [
        (("de",), "en", "de"), (("de", "fr"), "fr", "fr"), ((), "nl", "nl"), ((), "", "und"),
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


def test_a_file_that_is_too_long(served: Recognizer) -> None:
    with serving(Server({"m": served}, Limits(call_s=0.05), token="ü")) as address:
        sent = {"params": {"token": "ü"}, "files": {"file": GOOD}, "timeout": 60}
        answer = httpx.post(URL.format(address), **sent)  # type: ignore[arg-type]
        assert answer.status_code == 413
        assert "at most 0" in answer.json()["error"]["message"]


def test_metrics_are_what_prometheus_reads(address: str, server: Server) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    text = httpx.get(f"http://{address}/metrics").text
    families = {each.name: each for each in text_string_to_metric_families(text)}
    assert families["asrkit_streams"].samples[0].value == len(server.calls) == len(server.resumable)
    assert families["asrkit_audio_seconds"].type == "counter"


def test_the_length_of_a_cut_file_is_what_was_read(address: str) -> None:
    """Its header states more, and a FLAC's decoder notices at the end only."""
    name, data = file_of(np.random.default_rng(0).normal(0, 0.1, 48000), "flac")
    answers = []
    for part in (data, data[: len(data) * 6 // 10]):
        fields, file = {"response_format": "verbose_json"}, {"file": (name, part)}
        answers.append(httpx.post(URL.format(address), files=file, data=fields, timeout=30))
    whole, cut = (answer.json()["duration"] for answer in answers)
    assert whole == 3.0
    assert 1.5 < cut < 2.0
    assert "is cut off" in answers[1].headers["X-Asrkit-Warning"]
