"""The dialects of services as tables: what a client sends, and what it gets."""

import base64
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from starlette.datastructures import QueryParams
from wyoming.event import Event

from asrkit.errors import UserError
from asrkit.runtime import Endpointer, Recognizer
from asrkit.serve.converse import Append, Commit, Finish
from asrkit.serve.dialects.asrkit_stream import AsrkitStream
from asrkit.serve.dialects.audio import A_LAW, MU_LAW
from asrkit.serve.dialects.deepgram_live import Deepgram
from asrkit.serve.dialects.openai_realtime import Realtime
from asrkit.serve.dialects.twilio import Twilio
from asrkit.serve.dialects.vosk import Vosk
from asrkit.serve.dialects.wyoming import Wyoming
from asrkit.serve.server import Limits, Server
from tests.serve.offline import BEGUN, ENDED, Offline, fits, segment, update
from tests.serve.running import connected, serving

Kind = Callable[[Server], Offline]
pytestmark = pytest.mark.usefixtures("collected")  # texts are nested deeply
CODES = bytes(range(256))
HALF = "the audio ends within a sample: 1 bytes are not used"
SNOWMAN = "the model cannot write '☃': left out of the preferred phrases"


def of(**value: Any) -> str:
    return json.dumps(value)


# Deepgram


def deepgram(**options: Any) -> Kind:
    query = {"encoding": "linear16", "sample_rate": "16000"} | options
    pairs = [
        (name, each)
        for name, value in query.items()
        for each in (value if isinstance(value, list) else [value])
    ]
    pairs = [each for each in pairs if each[1] is not None]
    return lambda server: Offline(Deepgram(QueryParams(pairs)), server)


def result(start: float, duration: float, *flags: bool, text: str = "") -> dict[str, Any]:
    flag = {"is_final": flags[0], "speech_final": flags[0], "from_finalize": flags[1]}
    best = {"alternatives": [{"transcript": text}]}
    return {"type": "Results", "start": start, "duration": duration, "channel": best, **flag}


def warned(warning: str) -> list[Any]:
    """Steps in which the first result and the end have a warning."""
    expected = {"warnings": [warning]} if warning else {}
    segments = update(segment("one"), segment("two"))
    return [(segments, [{"metadata": expected}, {}]), (ENDED, [{"type": "Metadata", **expected}])]


# OpenAI's realtime protocol


def realtime(query: str = "intent=transcription") -> Kind:
    return lambda server: Offline(Realtime(QueryParams(query), Endpointer(400)), server)


def change(**parts: Any) -> str:
    return of(type="session.update", session={"audio": {"input": parts}})


def audio(data: bytes) -> str:
    """The event of audio, which encoders write in lines."""
    return of(type="input_audio_buffer.append", audio=base64.encodebytes(data).decode())


def event(kind: str, item: int, **fields: Any) -> dict[str, Any]:
    group = "conversation.item.input_audio_transcription"
    if kind not in ("delta", "completed"):
        group = "input_audio_buffer"
    return {"type": f"{group}.{kind}", "item_id": f"item_{item}", **fields}


def updated(**parts: Any) -> dict[str, Any]:
    return {"type": "session.updated", "session": {"audio": {"input": parts}}}


COMMIT, CLEAR = of(type="input_audio_buffer.commit"), of(type="input_audio_buffer.clear")
CLEARED = {"type": "input_audio_buffer.cleared"}


# asrkit's own, Vosk, Twilio and Wyoming


def asrkit(server: Server) -> Offline:
    return Offline(AsrkitStream(), server)


def vosk(server: Server) -> Offline:
    return Offline(Vosk(), server)


def config(**settings: Any) -> str:
    return of(config=settings)


def twilio(server: Server) -> Offline:
    return Offline(Twilio("secret"), server)


MU = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}


def start(*tracks: str, form: Any = MU, **parameters: str) -> str:
    about = {
        "streamSid": "MZ", "tracks": [*tracks], "mediaFormat": form,
        "customParameters": {"order": "42", **parameters},
    }  # fmt: skip
    return of(event="start", streamSid="MZ", start=about)


def media(payload: str, **track: str) -> str:
    return of(event="media", media={"payload": payload, "chunk": "2", **track})


STOP, MARK = of(event="stop"), of(event="mark", mark={"name": "a"})
CONNECTED = of(event="connected", protocol="Call", version="1.0.0")


def transcript(track: str, text: str, is_final: bool) -> dict[str, Any]:
    value = {"event": "transcript", "streamSid": "MZ", "track": track}
    return {**value, "text": text, "is_final": is_final}


def wyoming(server: Server) -> Offline:
    return Offline(Wyoming(server.models), server)


FORM = {"rate": 16000, "width": 2, "channels": 1}
START, STOPPED = Event("audio-start", FORM), Event("audio-stop")
STEPS: dict[str, tuple[Kind, list[tuple[Any, Any]]]] = {
    "deepgram: updates": (deepgram(interim_results="true"), [
        (update(live="four", seconds=1.0), [result(0.0, 1.0, False, False, text="four")]),
        (update(live="four", seconds=1.2), []),
        (update(segment("four five", 0.5, 2.0)), [result(0.0, 2.0, True, False, text="four five")]),
        (update(segment("", 2.0, 3.0), seconds=3.0), []),
        (update(seconds=3.5, commits=1), [result(3.0, 0.5, True, True)]),
        (update(segment("six", 3.5, 4.0), segment("", 4.0, 5.0), commits=2),
         [result(3.0, 1.0, True, False, text="six"), result(4.0, 1.0, True, True)]),
    ]),
    "deepgram: final results": (deepgram(), [
        (update(live="four", seconds=9.0), []),
        (update(segment("four")), [result(0.0, 1.0, True, False, text="four")]),
    ]),
    "deepgram: messages": (deepgram(channels="2", multichannel="true"), [
        ([b"ab\0\0\1", b"\0\2\0"], [Append([[25185, 0]]), Append([[1, 2]])]),
        (of(type="KeepAlive"), []), (of(type="Finalize"), [Commit()]),
        (of(type="CloseStream"), [Finish()]), (b"", [Finish()]), (BEGUN, [{"channels": 2}]),
        ((1, update(segment("four"))), [{"channel_index": [1, 2]}]),
    ]),
    "deepgram: a mix": (deepgram(channels="2"), [(b"\0\1\0\3", [Append([512 / 32768])])]),
    "deepgram: half a sample": (deepgram(), [
        (b"\1", [Append([])]), (b"", [Finish()]), (ENDED, [{"warnings": [HALF]}]),
    ]),
    **{
        f"deepgram: {name}": (deepgram(encoding=name, sample_rate="8000"), [
            (CODES, [Append((table / 32768).tolist())]), (BEGUN, [{"sample_rate": 8000}]),
        ])
        for name, table in (("mulaw", MU_LAW), ("alaw", A_LAW))
    },
    **{
        f"deepgram: {options}": (deepgram(model="small-en-alnum", **options), [
            (BEGUN, [{"pause_ms": pause_ms, "phrases": options.get("keyterm", [])}]),
            *warned(warning),
        ])
        for options, pause_ms, warning in (
            ({}, None, ""), ({"endpointing": "false"}, 0, ""), ({"endpointing": "900"}, 900, ""),
            ({"endpointing": "1"}, None, ""),  # true
            ({"endpointing": "10"}, 200, "endpointing 10 is within words too: 200 is used"),
            ({"language": "de"}, None, "language 'de' has no effect: the model recognises en"),
            ({"keyterm": ["oh seven", "☃"]}, None, SNOWMAN),
            ({"punctuate": "true", "diarize": "false", "dictation": "true", "token": "x"}, None,
             "no effect here: punctuate, dictation"),
        )
    },
    # Deltas are live words except the last one, and none that differs from what was sent.
    "realtime: pauses": (realtime(), [
        (update(live="four", start=0.5), [event("speech_started", 1, audio_start_ms=500)]),
        (update(live="four five six"), [event("delta", 1, delta="four five")]),
        (update(live="for five six seven"), []),
        (update(segment("for five six", 0.5, 2.1), live="seven", start=3.0), [
            event("speech_stopped", 1, audio_end_ms=2100),
            event("committed", 1, previous_item_id=None),
            event("completed", 1, transcript="for five six",
                  usage={"type": "duration", "seconds": 2}),
            event("speech_started", 8, audio_start_ms=3000),
        ]),
        (update(segment("seven", 3.0, 4.0)), [
            event("speech_stopped", 8), event("committed", 8, previous_item_id="item_1"),
            event("delta", 8, delta="seven"), event("completed", 8, transcript="seven"),
        ]),
    ]),
    "realtime: commits": (realtime(), [
        (change(turn_detection=None), [updated(turn_detection=None)]),
        ([audio(b"\0\0"), COMMIT], [Append([0]), Commit()]),
        (update(segment("a"), seconds=1.0), []),
        (update(segment("b"), seconds=2.0, commits=1), [
            event("committed", 3, previous_item_id=None), event("delta", 3, delta="a b"),
            event("completed", 3, transcript="a b"),
        ]),
        (update(seconds=3.0, commits=2), [
            event("committed", 8, previous_item_id="item_3"),
            event("completed", 8, transcript=""),
        ]),
    ]),
    # An update keeps what it does not name.
    "realtime: sessions": (realtime(), [
        (change(), [updated(format={"type": "audio/pcm", "rate": 24000})]),
        (change(format={"type": "audio/pcm", "rate": 48000}, transcription={"prompt": "seven"}),
         [updated(turn_detection={"type": "server_vad", "silence_duration_ms": 400},
                  transcription={"prompt": "seven", "model": "small-en-alnum"})]),
        (BEGUN, [{"sample_rate": 48000, "pause_ms": 400, "end_of_turn": None}]),
        (audio(b"\1\0\2"), [Append([1])]), (CLEAR, [CLEARED]), (audio(b"\1\0"), [Append([1])]),
        ([CLEAR, change(turn_detection={"type": "server_vad", "silence_duration_ms": 700})],
         [CLEARED, updated(format={"type": "audio/pcm", "rate": 48000})]),
        (BEGUN, [{"sample_rate": 48000, "pause_ms": 700, "phrases": ["seven"]}]),
        (change(format={"type": "audio/pcmu"}),
         [updated(turn_detection={"type": "server_vad", "silence_duration_ms": 700})]),
        (audio(CODES), [Append(MU_LAW.tolist())]),
        ([CLEAR, change(format={"type": "audio/pcma"}, turn_detection=None)],
         [CLEARED, updated(format={"type": "audio/pcma"}, turn_detection=None)]),
        (audio(CODES), [Append(A_LAW.tolist())]),
        (BEGUN, [{"sample_rate": 8000, "pause_ms": 0, "end_of_turn": "off"}]),
    ]),
    "realtime: warnings": (realtime(), [
        (change(noise_reduction={"type": "near_field"}, transcription={"keywords": ["☃", "seven"]},
                turn_detection={"type": "server_vad", "threshold": 0.5, "create_response": None}),
         [updated(), {"type": "warning", "message": SNOWMAN}, {
             "type": "warning", "message": "no effect here: session.audio.input.noise_reduction, "
             "session.audio.input.turn_detection.threshold"}]),
        (change(transcription={"language": "en-US", "keywords": []}), [updated()]),
        (change(transcription={"language": "de"}),
         [updated(), {"message": "language 'de' has no effect: the model recognises en"}]),
    ]),
    # A reply to each message: the oldest segment that waits, or the live text; a reset is a call.
    "vosk: replies": (vosk, [
        (b"\1\0\2\0", [Append([1, 2]), {"partial": ""}]),
        (update(segment("one"), segment("two"), live="three"), []),
        (b"", [Append([]), {"text": "one", "result": [
            {"conf": 0.5, "end": 0.4, "start": 0.0, "word": "one"}]}]),
        ([b"", b""], [Append([]), {"text": "two"}, Append([]), {"partial": "three"}]),
        (of(reset=1), [Finish(is_last=False)]), (update(segment("three"), segment("four")), []),
        (ENDED, [{"text": "three four"}]), (BEGUN, [{"sample_rate": 8000}]),
        ([config(words=False, sample_rate=16000), b"\1", b"\0"],
         [Append([]), {"partial": ""}, Append([1]), {"partial": ""}]),
        (BEGUN, [{"sample_rate": 16000}]), (update(segment("five")), []),
        (b"x", [Append([]), {"text": "five"}]), (of(eof=1), [Finish()]),
        (ENDED, [{"text": "", "warning": HALF}]),
    ]),
    **{
        f"vosk: {settings}": (vosk, [
            (config(**settings), []), (b"", [Append([]), {"partial": "", **warning}]),
            (b"", [Append([]), {"partial": ""}]),
        ])
        for settings, warning in (
            ({}, {}), ({"phrase_list": ["seven"]}, {}),
            ({"phrase_list": ["seven", "☃"]}, {"warning": SNOWMAN}),
            ({"spk": 1, "max_alternatives": 3},
             {"warning": "no effect here: spk, max_alternatives"}),
        )
    },
    "twilio": (twilio, [
        ([CONNECTED, start("inbound", "outbound", hotwords="oh seven, ☃", pause_ms="0")],
         [{"event": "warning", "message": SNOWMAN}]),
        (BEGUN, [{"channels": 2, "sample_rate": 8000, "token": "secret", "pause_ms": 0,
                  "phrases": ["oh seven", "☃"]}]),
        (media("/wA=", track="outbound"), [Append([0, -32124], 1)]),
        ([MARK, of(event="of-tomorrow")], []), (STOP, [Finish()]),
        ((1, update(live="four")), [transcript("outbound", "four", False)]),
        ((1, update(live="four")), []),
        ((1, update(segment("four"), segment(""), live="four")),
         [transcript("outbound", "four", True), transcript("outbound", "four", False)]),
        (ENDED, [{"event": "ended", "streamSid": "MZ"}]),
    ]),
    "twilio: a token": (twilio, [(start("inbound", token="x"), []), (BEGUN, [{"token": "x"}])]),
    # Options hold for the next recording only.
    "wyoming": (wyoming, [
        ([Event("transcribe", {"name": "small-en-alnum", "language": "de-DE", "context": {}}),
          Event("of-tomorrow"), START], []),
        (BEGUN, [{"model": "small-en-alnum", "language": "de-DE", "sample_rate": 16000}]),
        ([Event("audio-chunk", FORM, data) for data in (b"\0", b"\3x")],
         [Append([]), Append([768])]),
        ([update(live="a b", stable="a"), update(segment("a b"))], []),
        (STOPPED, [Finish(is_last=False)]),
        (ENDED, [{"type": "transcript", "text": "a b", "language": "en", "warning":
                  f"language 'de-DE' has no effect: the model recognises en; "
                  f"no effect here: context; {HALF}"}]),
        ([START, STOPPED], [Finish(is_last=False)]), (BEGUN, [{"model": None}]),
        (ENDED, [Event("transcript", {"text": "", "language": "en"})]),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_a_conversation(name: str, server: Server) -> None:
    kind, steps = STEPS[name]
    talk = kind(server)
    for sent, expected in steps:
        found = talk.answer(sent)
        assert fits(found, expected), (sent, found)


OPENED: list[tuple[Kind, str]] = [
    *((deepgram(**options), why) for options, why in (
        ({"encoding": "opus"}, "encoding: Input should be 'linear16', 'mulaw' or 'alaw'"),
        ({"encoding": None}, "encoding: Field required"), ({"sample_rate": "1"}, "sample_rate"),
        ({"channels": "9"}, "channels"), ({"endpointing": "-1"}, "than or equal to 0"),
        ({"interim_results": "perhaps"}, "interim_results"), ({"model": "/etc/x"}, "not served"),
        ({"keyterm": "x" * 1001}, "keyterm"),
        ({"redact": "pci"}, "redact: the server removes nothing from the text"),
    )),
    (realtime(""), "only /v1/realtime?intent=transcription is served"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "why"), OPENED)
def test_requests_that_are_rejected(server: Server, kind: Kind, why: str) -> None:
    with pytest.raises(UserError, match=re.escape(why)):
        kind(server)


REFUSED: list[tuple[Kind, list[Any], str]] = [
    *((asrkit, [message], why) for message, why in (
        ("not json", "Invalid JSON"), (of(type="end"), "must be a start or a resume"),
        (b"\0\0", "must be a start or a resume"), (of(type="start", sample_rate=5), "sample_rate"),
        (of(type="start", encoding="mp3"), "encoding"), (of(type="start", channels=9), "channels"),
        (of(type="start", more=1), "more: Extra inputs are not permitted"),
        (of(type="start", hotwords=["x" * 300]), "0: String should have at most"),
    )),
    *((deepgram(), [text], "expected audio, or an object whose type is one of")
      for text in ("{", "[]", '{"type": 7}', '{"type": "Configure"}', "[" * 2000)),
    *((realtime(), [message], why) for message, why in (
        (of(type="nonsense"), "type: Input should be 'session.update', 'input_audio_buffer"),
        ("[", "expected an event"), (b"\xff", "expected an event"),
        (of(type="input_audio_buffer.append", audio="*"), "audio: expected base64"),
        (of(type="input_audio_buffer.clear", item=1), "not permitted"),
        (change(transcription={"prompt": "seven," * 1500}), "at most 1000 hotwords"),
        (change(transcription={"model": "nobody"}), "is not served"),
        (change(transcription={"prompt": 7}), "transcription.prompt"),
        (change(turn_detection={"type": "semantic_vad"}), "turn_detection.type"),
        (change(turn_detection={"type": "server_vad", "silence_duration_ms": 1}), "duration_ms"),
        (change(format={"type": "audio/pcm", "rate": 8000}, turn_detection=7), "turn_detection"),
        (change(format={"type": "mp3"}), "audio.input.format"),
    )),
    (realtime(), [audio(b"\0\0"), change()], "has audio already: send input_audio_buffer.clear"),
    *((realtime(), messages, "append some first") for messages in (
        [audio(b"\0\0"), CLEAR, COMMIT], [audio(b""), COMMIT],
    )),
    *((vosk, [message], "config") for message in (
        config(sample_rate=1), config(words="maybe"), of(config=1), config(sample_rate=8000.5),
        config(phrase_list="seven"), "[]", "{", of(hello=1), of(eof=0), of(eof=1, reset=1), "{}",
    )),
    (vosk, [b"", config(sample_rate=8000), config(words=False)], "audio already; send a reset"),
    *((twilio, messages, why) for messages, why in (
        ([STOP], "must begin with the event start, got 'stop'"),
        ([start("inbound_track")], "start.tracks"),
        ([start("inbound", form=MU | {"encoding": "audio/x-alaw"})], "start.mediaFormat.encoding"),
        ([start("inbound", model="/etc/passwd")], "is not served"),
        ([start("inbound", pause_ms="-1")], "start.customParameters.pause_ms"),
        ([start("inbound", hotwords="seven," * 1001)], "at most 1000 hotwords"),
        ([start("inbound"), start("inbound")], "has started already"),
        ([start("inbound"), media("", track="outbound")], "media.track"),
        ([start("inbound"), media("***")], "base64"),
        ([start("inbound"), of(event=7)], "the field event is missing"),
        (["[]"], "expected a message of a media stream"),
    )),
    *((wyoming, [Event(*each) for each in events], why) for events, why in (
        ([("transcribe", {"name": "/etc/passwd"}), ("audio-start", FORM)], "is not served"),
        ([("transcribe", {"name": 7})], "transcribe: name"),
        ([("audio-start", FORM | {"width": 4})], "audio-start: width"),
        ([("audio-start", FORM | {"channels": 2})], "audio-start: channels"),
        ([("audio-start", FORM | {"rate": 768_001})], "audio-start: rate"),
        ([("audio-start", FORM), ("audio-chunk", FORM | {"rate": 8000})], "another format"),
        ([("audio-start", FORM), ("transcribe", {})], "transcribe must come before"),
        ([("audio-stop", {})], "audio-stop without audio"),
    )),
]  # fmt: skip
ANSWERS = {  # of dialects in which an invalid message does not end the conversation
    Deepgram: {"type": "Error", "variant": "SchemaError"},
    Realtime: {"type": "error", "error": {"code": "invalid_request", "event_id": None}},
}


@pytest.mark.parametrize(("kind", "messages", "why"), REFUSED)
def test_what_cannot_be_followed(server: Server, kind: Kind, messages: list[Any], why: str) -> None:
    """A session of the realtime protocol stays as it is."""
    talk = kind(server)
    talk.answer(messages[:-1])
    before = vars(talk.dialect).get("session")
    with pytest.raises(UserError, match=re.escape(why)) as caught:
        talk.answer(messages[-1])
    assert len(str(caught.value)) < 400
    assert fits(talk.dialect.wrong(caught.value), ANSWERS.get(type(talk.dialect)))
    assert vars(talk.dialect).get("session") == before


def test_g711_is_the_standard() -> None:
    """Values of ITU-T G.711, tables 1a and 2a: scaled to 16 bits."""
    assert [MU_LAW[code] for code in (0xFF, 0x7F, 0x80, 0x00, 0xF0)] == [0, 0, 32124, -32124, 120]
    assert [A_LAW[code] for code in (0xD5, 0x55, 0xAA, 0x2A)] == [8, -8, 32256, -32256]
    for table in (MU_LAW, A_LAW):
        assert (table[:128] == -table[128:]).all()


def test_a_changed_session_takes_the_place_of_the_one_before(served: Recognizer) -> None:
    server, path = Server({"m": served}, Limits(streams=1)), "v1/realtime?intent=transcription"
    with serving(server) as address, connected(f"ws://{address}/{path}") as client:
        for kind in ("session.created", "session.updated", "session.updated"):
            assert json.loads(client.recv())["type"] == kind
            assert len(server.calls) == 1
            client.send(change(turn_detection=None))
