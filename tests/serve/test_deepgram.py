"""Deepgram's live WebSocket and REST API, by Deepgram's own client."""

import hashlib
import json
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
import soxr
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import asrkit
from asrkit.runtime import Recognizer
from asrkit.serve.dialects.audio import A_LAW, MU_LAW
from asrkit.serve.server import Limits, Server
from tests.conftest import PROJECT, skip
from tests.serve.running import serving

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


def client_of(address: str, key: str = "none") -> "DeepgramClient":
    if not DEEPGRAM:
        skip("deepgram-sdk is not installed")
    web, live = f"http://{address}", f"ws://{address}"
    environment = DeepgramClientEnvironment(base=web, production=live, agent=live, agent_rest=web)
    return DeepgramClient(api_key=key, environment=environment)


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


def text_of(messages: list[Message], channel: int = 0) -> str:
    return " ".join(filter(None, map(transcript, results(messages, channel))))


def transcript(message: Message) -> str:
    return str(message["channel"]["alternatives"][0]["transcript"])


def words_of(messages: list[Message]) -> list[tuple[str, float, float]]:
    words = [w for each in messages for w in each["channel"]["alternatives"][0]["words"]]
    return [(each["word"], each["start"], each["end"]) for each in words]


def spaced_out(recordings: Recordings) -> np.ndarray:
    """Two recordings with a pause after each."""
    quiet = np.zeros(24_000, np.int16)
    return np.concatenate([each for _, samples in recordings[:2] for each in (samples, quiet)])


def test_a_stream(address: str, served: Recognizer, recordings: Recordings) -> None:
    """Final results are the segments of `transcribe`; interim ones come before them."""
    samples = spaced_out(recordings)
    expected = served.transcribe(samples)
    found = stream(address, [samples.tobytes()], interim_results="true", vad_events="true")
    final = results(found)
    assert text_of(found) == expected.text
    assert len(final) == len([each for each in expected.segments if each.text]) >= 2
    assert words_of(final) == [(w.text, w.start, w.end) for w in expected.words]
    assert all(each["speech_final"] and not each["from_finalize"] for each in final)
    edges = [(each["start"], each["start"] + each["duration"]) for each in final]
    assert np.allclose(edges, [(s.start, s.end) for s in expected.segments if s.text], atol=2e-3)
    kinds = [each["type"] for each in found]
    assert kinds.count("SpeechStarted") == len(final)
    assert "UtteranceEnd" not in kinds
    first = found[kinds.index("Results")]
    assert not first["is_final"]
    assert first["metadata"]["warnings"] == [
        "the model 'nova-3' is not served: small-en-alnum is used"
    ]
    last = found[-1]
    assert kinds.index("Metadata") == len(kinds) - 1
    assert last["sha256"] == hashlib.sha256(samples.tobytes()).hexdigest()
    assert (last["channels"], last["duration"]) == (1, round(len(samples) / 16000, 3))


def test_without_interim_results_there_are_final_ones_only(
    address: str, served: Recognizer, recordings: Recordings
) -> None:
    path, samples = recordings[0]
    found = stream(address, ["keep_alive", samples.tobytes(), "keep_alive"], endpointing="false")
    assert [each["type"] for each in found] == ["Results", "Metadata"]
    alone = served.with_decoding(served.decoding._replace(endpointer=None))
    assert text_of(found) == alone.transcribe(path).text


def test_finalize_ends_the_segment(
    address: str, served: Recognizer, recordings: Recordings
) -> None:
    """The text is that of the audio before it, and a result says so, once if it is asked twice."""
    parts = [samples.tobytes() for _, samples in recordings[:2]]
    sent = [parts[0], "finalize", parts[1], "finalize", "finalize"]
    found = stream(address, sent, endpointing=False, interim_results=True)
    marked = [each for each in results(found) if each["from_finalize"]]
    alone = served.with_decoding(served.decoding._replace(endpointer=None))
    texts = [*map(transcript, marked)]
    assert texts == [alone.transcribe(path).text for path, _ in recordings[:2]]
    assert all(each["speech_final"] for each in marked)


@pytest.mark.parametrize(("encoding", "table"), [("mulaw", MU_LAW), ("alaw", A_LAW)])
def test_telephony(
    address: str, served: Recognizer, recordings: Recordings, encoding: str, table: np.ndarray
) -> None:
    samples = soxr.resample(recordings[1][1] / 32768, 16000, 8000) * 32767
    codes = np.abs(table[None].astype(int) - samples[:, None]).argmin(axis=1).astype(np.uint8)
    found = stream(address, [codes.tobytes()], encoding=encoding, sample_rate=8000)
    assert text_of(found) == served.transcribe(table[codes], 8000).text


def test_channels(address: str, served: Recognizer, recordings: Recordings) -> None:
    """Each channel is a stream of its own, bit for bit; without multichannel they are mixed."""
    one, two = (samples for _, samples in recordings[:2])
    both = np.zeros((max(len(one), len(two)), 2), np.int16)
    both[: len(one), 0], both[: len(two), 1] = one, two
    expected = [served.transcribe(both[:, number]) for number in range(2)]
    data = [both.tobytes()]
    found = stream(address, data, channels=2, multichannel=True, interim_results=True)
    for number in range(2):
        own = results(found, number)
        assert text_of(found, number) == expected[number].text
        assert words_of(own) == [(w.text, w.start, w.end) for w in expected[number].words]
        assert all(each["channel_index"] == [number, 2] for each in own)
    assert found[-1]["channels"] == 2
    assert expected[0].text != expected[1].text
    query = httpx.QueryParams({**FORMAT, "channels": "2", "multichannel": "true"})
    with connect(f"ws://{address}/v1/listen?{query}") as client:  # one of them is finalized
        for text in ('{"type": "Finalize", "channel": 2}', '{"type": "Finalize", "channel": []}'):
            client.send(text)
            assert "channel must be 0 to 1" in json.loads(client.recv(timeout=10))["description"]
        client.send('{"type": "Finalize", "channel": 1}')
        client.send('{"type": "CloseStream"}')
        (result, _) = [json.loads(each) for each in client]
        assert (result["channel_index"], result["from_finalize"]) == ([1, 2], True)
    mixed = stream(address, data, channels=2)
    assert text_of(mixed) == served.transcribe(both).text


def test_the_end_of_an_utterance(address: str, recordings: Recordings) -> None:
    samples = spaced_out(recordings).tobytes()
    found = stream(address, [samples], utterance_end_ms=1000, interim_results=True)
    ends = [each["last_word_end"] for each in found if each["type"] == "UtteranceEnd"]
    words = words_of(results(found))
    assert len(ends) >= 2
    assert set(ends) <= {end for _, _, end in words}


def test_pauses(address: str, served: Recognizer, recordings: Recordings) -> None:
    samples = spaced_out(recordings)
    for asked, pause_ms in (("900", 900), ("10", 200)):
        own = asrkit.Endpointer(pause_ms)
        expected = served.with_decoding(served.decoding._replace(endpointer=own))
        found = stream(address, [samples.tobytes()], endpointing=asked)
        segments = [each.text for each in expected.transcribe(samples).segments if each.text]
        assert [*map(transcript, results(found))] == segments
        said = "endpointing 10 is within words too: 200 is used"
        assert (said in found[-1]["warnings"]) == (asked == "10")


def test_options(address: str, served: Recognizer, recordings: Recordings) -> None:
    path, samples = recordings[0]
    found = stream(
        address, [samples.tobytes() + b"x"], model="small-en-alnum", language="de",
        keyterm=["oh seven", "☃"], keywords="eleven:2", punctuate=True, diarize=False,
        smart_format=True, version="latest",
    )  # fmt: skip
    preferred = served.with_hotwords(["oh seven", "eleven"])
    assert text_of(found) == preferred.transcribe(path).text
    said = "; ".join(found[-1]["warnings"])
    for each in (
        "'☃'", "language 'de'", "no effect here: punctuate, smart_format, version",
        "keywords: weights", "1 bytes are not used",
    ):  # fmt: skip
        assert each in said
    assert "diarize" not in said
    clean = stream(address, [samples.tobytes()], model="small-en-alnum")
    assert "warnings" not in clean[-1]


REFUSED = [
    ({"encoding": "opus"}, "encoding must be one of linear16, mulaw, alaw, got 'opus'"),
    ({"encoding": None}, "the WebM or Ogg of a browser's MediaRecorder, are not read live"),
    ({"sample_rate": None}, "sample_rate: Field required"),
    ({"sample_rate": "1"}, "sample_rate"),
    ({"sample_rate": "11999"}, "not a usual sample rate"),
    ({"channels": "9"}, "channels"),
    ({"channels": "x"}, "channels"),
    ({"endpointing": "-1"}, "endpointing"),
    ({"interim_results": "perhaps"}, "interim_results"),
    ({"utterance_end_ms": "0"}, "utterance_end_ms"),
    ({"model": "/etc/passwd"}, "is not served"),
    ({"callback": "http://example.org"}, "callback"),
    ({"redact": "pci"}, "redact"),
    ({"keyterm": "x" * 1001}, "keyterm"),
]


@pytest.mark.parametrize(("options", "why"), REFUSED)
def test_refusals(address: str, options: dict[str, str | None], why: str) -> None:
    query = {name: each for name, each in (FORMAT | options).items() if each is not None}
    with connect(f"ws://{address}/v1/listen?{httpx.QueryParams(query)}") as client:
        found = json.loads(client.recv(timeout=10))
        assert found["type"] == "Error"
        assert why in found["description"]
        with pytest.raises(ConnectionClosed):
            client.recv(timeout=10)


def test_messages_that_cannot_be_followed_are_answered(
    address: str, served: Recognizer, recordings: Recordings
) -> None:
    path, samples = recordings[0]
    with connect(f"ws://{address}/v1/listen?{httpx.QueryParams(FORMAT)}") as client:
        for text in ("{", "[]", '{"type": 7}', '{"type": "Stop"}', "[" * 2000):
            client.send(text)
            found = json.loads(client.recv(timeout=10))
            assert (found["type"], found["variant"]) == ("Error", "SchemaError")
        client.send('{"type": "Configure", "keyterms": []}')
        assert json.loads(client.recv(timeout=10))["type"] == "ConfigureFailure"
        client.send(samples.tobytes())
        client.send(b"")  # closes the stream, too
        assert text_of([json.loads(each) for each in client]) == served.transcribe(path).text


def test_a_full_server(served: Recognizer) -> None:
    """Channels are streams: two of them do not fit, and none of them stays."""
    server = Server({"m": served}, Limits(streams=1))
    query = httpx.QueryParams({**FORMAT, "channels": "2", "multichannel": "true"})
    with serving(server) as address:
        for _ in range(2):
            with connect(f"ws://{address}/v1/listen?{query}") as client:
                assert json.loads(client.recv(timeout=10))["variant"] == "streams"
                with suppress(ConnectionClosed):
                    client.recv(timeout=10)
        assert server.streams == 0


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


def test_utterances_of_a_file_end_at_pauses(
    address: str, served: Recognizer, recordings: Recordings, tmp_path: Path
) -> None:
    samples, path = spaced_out(recordings), tmp_path / "a.wav"
    soundfile.write(path, samples, 16000)

    own = served.with_decoding(served.decoding._replace(endpointer=asrkit.Endpointer(1200)))
    texts = [each.text for each in own.transcribe(path).segments if each.text]
    found = client_of(address).listen.v1.media.transcribe_file(
        request=path.read_bytes(), utterances=True, utt_split=1.2
    )
    assert [each.transcript for each in found.results.utterances] == texts


def test_files_that_cannot_be(address: str, served: Recognizer) -> None:
    client = client_of(address)
    with pytest.raises(ApiError) as caught:
        client.listen.v1.media.transcribe_url(url="http://127.0.0.1/a.wav", model="nova-3")
    assert caught.value.status_code == 400
    assert caught.value.body["err_msg"].startswith("url: the server reads no other address")
    place = f"http://{address}/v1/listen"
    for query, body, status, why in (
        ("", b"", 400, "file"),
        ("", b"no audio", 400, "the file"),
        ("?encoding=linear16", b"", 400, "encoding"),
        ("?callback=http://example.org", b"", 400, "callback"),
        ("?utt_split=0", b"", 400, "utt_split"),
        ("?model=nobody", b"", 400, "is not served"),
        ("", bytes(2_100_000), 413, "at most 2 MB"),
    ):
        answer = httpx.post(place + query, content=body)
        assert (answer.status_code, why in answer.json()["err_msg"]) == (status, True), answer.text
    chunked = httpx.post(place, content=iter([bytes(1_000_000)] * 3))
    assert (chunked.status_code, chunked.json()["err_code"]) == (413, "TOO_LARGE")


def test_the_token(served: Recognizer, recordings: Recordings) -> None:
    data = recordings[0][0].read_bytes()
    with serving(Server({"m": served}, token="secret")) as address:
        found = client_of(address, "secret").listen.v1.media.transcribe_file(request=data)
        assert found.results.channels[0].alternatives[0].transcript
        with pytest.raises(ApiError) as caught:
            client_of(address, "wrong").listen.v1.media.transcribe_file(request=data)
        assert caught.value.status_code == 401


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
