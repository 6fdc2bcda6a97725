"""Deepgram's live WebSocket and REST API, by Deepgram's own client."""

import hashlib
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.datastructures import QueryParams

import asrkit
from asrkit.errors import UserError
from asrkit.runtime import Recognizer, Segment
from asrkit.serve.converse import Commit, Finish
from asrkit.serve.dialects.audio import A_LAW, MU_LAW
from asrkit.serve.dialects.deepgram_live import Deepgram
from asrkit.serve.server import Server
from tests.conftest import PROJECT, skip
from tests.serve.offline import Offline, fields, segment
from tests.serve.test_stream_channels import call_of

try:
    from deepgram import DeepgramClient
    from deepgram.core.api_error import ApiError
    from deepgram.environment import DeepgramClientEnvironment
except ImportError:
    DEEPGRAM = False
else:
    DEEPGRAM = True

Recordings = list[tuple[Path, np.ndarray]]
Message = dict[str, Any]
FORMAT = {"encoding": "linear16", "sample_rate": "16000"}


def client_of(address: str) -> "DeepgramClient":
    if not DEEPGRAM:
        skip("deepgram-sdk is not installed")
    web, live = f"http://{address}", f"ws://{address}"
    environment = DeepgramClientEnvironment(base=web, production=live, agent=live, agent_rest=web)
    return DeepgramClient(api_key="none", environment=environment)


def stream(address: str, parts: list[bytes | str], **options: Any) -> list[Message]:
    """The messages of a stream that sends these parts; a text is the name of a request."""
    asked = {"model": "nova-3", **FORMAT, **options}
    with client_of(address).listen.v1.connect(**asked) as connection:
        for part in [*parts, "close_stream"]:
            if isinstance(part, bytes):
                for at in range(0, len(part), 3200):
                    connection.send_media(part[at : at + 3200])
            else:
                getattr(connection, f"send_{part}")()
        return [json.loads(each.json()) for each in connection]


def results(messages: list[Message], channel: int = 0) -> list[Message]:
    """The final results of a channel."""
    return [
        each
        for each in messages
        if each["type"] == "Results" and each["is_final"] and each["channel_index"][0] == channel
    ]


def texts_of(messages: list[Message]) -> list[str]:
    return [each["channel"]["alternatives"][0]["transcript"] for each in messages]


def words_of(messages: list[Message]) -> list[tuple[str, float, float]]:
    words = [w for each in messages for w in each["channel"]["alternatives"][0]["words"]]
    return [(each["word"], each["start"], each["end"]) for each in words]


def test_a_stream(address: str, served: Recognizer, recordings: Recordings) -> None:
    """Final results are the segments of `transcribe`; interim ones come before them."""
    quiet = np.zeros(24_000, np.int16)
    samples = np.concatenate([x for _, samples in recordings[:2] for x in (samples, quiet)])
    expected = served.transcribe(samples)
    found = stream(address, [samples.tobytes()], interim_results="true", vad_events="true")
    final, segments = results(found), [each for each in expected.segments if each.text]
    assert texts_of(final) == [each.text for each in segments]
    assert len(final) >= 2
    assert words_of(final) == [(w.text, w.start, w.end) for w in expected.words]
    edges = [(each["start"], each["start"] + each["duration"]) for each in final]
    assert np.allclose(edges, [(each.start, each.end) for each in segments], atol=2e-3)
    first, last = found[0], found[-1]
    assert not first["is_final"]
    assert first["metadata"]["warnings"] == [
        "the model 'nova-3' is not served: small-en-alnum is used", "no effect here: vad_events",
    ]  # fmt: skip
    assert last["sha256"] == hashlib.sha256(samples.tobytes()).hexdigest()
    assert (last["channels"], last["duration"]) == (1, round(len(samples) / 16000, 3))


def test_channels(address: str, served: Recognizer, recordings: Recordings) -> None:
    """Each channel is a stream of its own, bit for bit."""
    both = call_of(recordings, 0, 1)
    found = stream(address, ["keep_alive", both.tobytes()], channels=2, multichannel=True)
    words = [words_of(results(found, number)) for number in range(2)]
    alone = [served.transcribe(each).words for each in both.T]
    assert words == [[(w.text, w.start, w.end) for w in each] for each in alone]
    assert words[0] != words[1]


def opened(server: Server, **options: Any) -> Offline:
    query = {name: value for name, value in (FORMAT | options).items() if value is not None}
    pairs = [
        (name, each)
        for name, value in query.items()
        for each in ([value] if isinstance(value, str) else value)
    ]
    return Offline(Deepgram(QueryParams(pairs)), server)


def test_updates(server: Server) -> None:
    """The messages of an update, by the options."""
    talk, quiet = opened(server, interim_results="true"), opened(server)
    updates: list[tuple[list[Segment], dict[str, Any], list[Any]]] = [
        ([], {"live": "four", "seconds": 1.0}, [(False, False, 0.0, 1.0)]),
        ([], {"live": "four", "seconds": 1.2}, []),  # nothing new
        ([segment("four five", 0.5, 2.0)], {}, [(True, False, 0.0, 2.0)]),
        ([segment("", 2.0, 3.0)], {"seconds": 3.0}, []),
        ([], {"seconds": 3.5, "commits": 1}, [(True, True, 3.0, 0.5)]),
        ([segment("six", 3.5, 4.0), segment("", 4.0, 5.0)], {"commits": 2},
         [(True, False, 3.0, 1.0), (True, True, 4.0, 1.0)]),
    ]  # fmt: skip
    for segments, state, expected in updates:
        found = talk.write(*segments, **state)
        assert fields(found, "is_final", "from_finalize", "start", "duration") == expected
    assert quiet.write(live="four", seconds=9.0) == []
    assert texts_of(quiet.write(segment("four"))) == ["four"]


def test_messages(server: Server) -> None:
    talk = opened(server, channels="2", multichannel="true")
    assert talk.samples(b"ab\0\0\1", b"\0\2\0") == [[[25185, 0]], [[1, 2]]]
    items: list[tuple[str | bytes, list[Any]]] = [
        ('{"type": "KeepAlive"}', []), ('{"type": "Finalize"}', [Commit()]),
        ('{"type": "CloseStream"}', [Finish()]), (b"", [Finish()]),
    ]  # fmt: skip
    for message, expected in items:
        assert talk.read(message) == expected
    for text in ("{", "[]", '{"type": 7}', '{"type": "Configure"}', "[" * 2000):
        with pytest.raises(UserError) as caught:
            talk.read(text)
        (answer,) = fields([talk.dialect.wrong(caught.value) or {}], "type", "variant")
        assert answer == ("Error", "SchemaError")
    assert opened(server, channels="2").samples(b"\0\1\0\3") == [[512 / 32768]]  # mixed
    for encoding, table in (("mulaw", MU_LAW), ("alaw", A_LAW)):
        talk = opened(server, encoding=encoding, sample_rate="8000")
        assert talk.samples(bytes(range(256))) == [(table / 32768).tolist()]


@pytest.mark.parametrize(
    ("options", "pause_ms", "warning"),
    [
        ({}, None, ""), ({"endpointing": "false"}, 0, ""), ({"endpointing": "900"}, 900, ""),
        ({"endpointing": "1"}, None, ""),  # true
        ({"endpointing": "10"}, 200, "endpointing 10 is within words too: 200 is used"),
        ({"language": "de"}, None, "language 'de' has no effect: the model recognises en"),
        ({"keyterm": ["oh seven", "☃"]}, None,
         "the model cannot write '☃': left out of the preferred phrases"),
        ({"punctuate": "true", "diarize": "false", "version": "latest", "token": "x"}, None,
         "no effect here: punctuate, version"),
    ],
)  # fmt: skip
def test_options(
    server: Server, options: dict[str, Any], pause_ms: int | None, warning: str
) -> None:
    """Warnings come with the first result and at the end."""
    talk = opened(server, model="small-en-alnum", **options)
    wish = talk.begun[0].wish
    assert (wish.pause_ms, wish.phrases) == (pause_ms, options.get("keyterm", []))
    first, second = talk.write(segment("one"), segment("two"))
    said = [each.get("warnings", []) for each in (first["metadata"], *talk.dialect.ended())]
    assert ["; ".join(each) for each in said] == [warning, warning]
    assert "warnings" not in second["metadata"]


REFUSED = [
    ({"encoding": "opus"}, "encoding: Input should be 'linear16', 'mulaw' or 'alaw'"),
    ({"encoding": None}, "encoding: Field required"), ({"sample_rate": "1"}, "sample_rate"),
    ({"channels": "9"}, "channels"), ({"endpointing": "-1"}, "endpointing"),
    ({"interim_results": "perhaps"}, "interim_results"), ({"model": "/etc/x"}, "is not served"),
    ({"callback": "http://example.org"}, "callback"), ({"redact": "pci"}, "redact"),
    ({"keyterm": "x" * 1001}, "keyterm"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "why"), REFUSED)
def test_refusals(server: Server, options: dict[str, str | None], why: str) -> None:
    with pytest.raises(UserError, match=why):
        opened(server, **options)


def test_a_file(address: str, served: Recognizer, recordings: Recordings) -> None:
    path, _ = recordings[0]
    found = client_of(address).listen.v1.media.transcribe_file(
        request=path.read_bytes(), model="nova-3", utterances=True, punctuate=True,
    )  # fmt: skip
    expected = served.transcribe(path)
    (channel,) = found.results.channels
    (best,) = channel.alternatives
    assert best.transcript == expected.text
    assert [(w.word, w.start, w.end) for w in best.words] == [
        (w.text, w.start, w.end) for w in expected.words
    ]
    segments = [each for each in expected.segments if each.text]
    assert [(u.transcript, u.start, u.end) for u in found.results.utterances] == [
        (s.text, s.spoken, s.spoken_end) for s in segments
    ]
    metadata = found.metadata
    assert metadata.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert metadata.warnings == [
        "the model 'nova-3' is not served: small-en-alnum is used", "no effect here: punctuate",
    ]  # fmt: skip


def test_files_that_cannot_be(address: str) -> None:
    client = client_of(address)
    with pytest.raises(ApiError) as caught:
        client.listen.v1.media.transcribe_url(url="http://127.0.0.1/a.wav", model="nova-3")
    assert caught.value.status_code == 400
    assert caught.value.body["err_msg"].startswith("url: the server reads no other address")
    place = f"http://{address}/v1/listen"
    for query, body, status, why in (
        ("?encoding=linear16", b"no audio", 400, "the file"),
        ("?callback=http://example.org", b"", 400, "callback"),
        ("?utterances=x", b"", 400, "utterances"), ("?model=nobody", b"", 400, "is not served"),
        ("", bytes(2_100_000), 413, "at most 2 MB"),
    ):  # fmt: skip
        answer = httpx.post(place + query, content=body)
        assert (answer.status_code, why in answer.json()["err_msg"]) == (status, True), answer.text
    chunked = httpx.post(place, content=iter([bytes(1_000_000)] * 3))
    assert (chunked.status_code, chunked.json()["err_code"]) == (413, "TOO_LARGE")


@pytest.mark.parametrize(
    ("example", "pause_ms"), [("pipecat_stt", None), ("livekit_stt", 600)]
)  # heavy packages, which no extra has
def test_pipelines_of_others(
    address: str, served: Recognizer, recordings: Recordings, example: str, pause_ms: int | None,
    tmp_path: Path,
) -> None:  # fmt: skip
    package = example.partition("_")[0]
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    source = (PROJECT / "docs" / "examples" / f"{example}.py").read_text(encoding="utf-8")
    program = tmp_path / "program.py"
    program.write_text(source.replace("127.0.0.1:8000", address), encoding="utf-8")
    endpointer = None if pause_ms is None else asrkit.Endpointer(pause_ms)
    own = served.with_decoding(served.decoding._replace(endpointer=endpointer))
    path, _ = recordings[0]
    done = subprocess.run(
        [sys.executable, str(program), str(path)], capture_output=True, text=True, timeout=120
    )
    expected = [each.text for each in own.transcribe(path).segments if each.text]
    assert done.stdout.splitlines() == expected, done.stderr[-2000:]
