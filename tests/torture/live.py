"""Calls and uploads of a server, and streams of odd numbers."""

import base64
import json
import random
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

import asrkit
from asrkit.errors import UserError
from asrkit.runtime import Recognizer
from asrkit.serve.app import app_of
from asrkit.serve.server import Limits, Server
from tests.torture.cage import Part

KEPT = Path(__file__).parents[1] / "kept"
SOUND = {"bytes": base64.b64encode(b"\x10\x20" * 800).decode()}
CALLS: dict[str, list[Any]] = {
    "/v1/stream": [
        {"type": "start", "sample_rate": 16000, "encoding": "pcm_s16le", "hotwords": ["ab"]},
        SOUND, {"type": "commit"}, SOUND, {"type": "end"},
    ],
    "/v1/realtime?intent=transcription": [
        {"type": "session.update", "session": {"type": "transcription", "audio": {"input": {
            "format": {"type": "audio/pcm", "rate": 24000}, "turn_detection": None}}}},
        {"type": "input_audio_buffer.append", "audio": SOUND["bytes"]},
        {"type": "input_audio_buffer.commit"}, {"type": "input_audio_buffer.clear"},
    ],
    "/vosk": [
        {"config": {"sample_rate": 8000, "words": True, "phrase_list": ["ab"]}}, SOUND,
        {"reset": 1}, SOUND, {"eof": 1},
    ],
    "/v1/listen?encoding=mulaw&sample_rate=8000&channels=2&multichannel=true": [
        SOUND, {"type": "KeepAlive"}, {"type": "Finalize"}, SOUND, {"type": "CloseStream"},
    ],
    "/twilio": [
        {"event": "start", "start": {"streamSid": "MZ", "tracks": ["inbound", "outbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}}},
        {"event": "media", "media": {"track": "inbound", "payload": SOUND["bytes"]}},
        {"event": "mark", "mark": {"name": "a"}}, {"event": "stop"},
    ],
}  # fmt: skip
UPLOADS = {  # address, kind of the body, what stands before and after the recording
    "file": ("/v1/audio/transcriptions", "multipart/form-data; boundary=b",
        b'--b\r\nContent-Disposition: form-data; name="response_format"\r\n\r\nverbose_json\r\n'
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.flac"\r\n\r\n',
        b"\r\n--b--\r\n"),
    "listen": ("/v1/listen?punctuate=true&utterances=true", "audio/flac", b"", b""),
}  # fmt: skip
SIGNALS = ("noise", "silence", "dc", "square", "nan", "inf", "denormal", "loud", "int16")
RATES = (1, 7, 999, 1000, 7999, 8000, 11025, 16000, 22050, 44100, 48000, 96000, 384000, 768000)
MOST_SECONDS = 300  # 1000 s of audio, in packets and as a whole, take 14 s of CPU time
MOST_SAMPLES = 1_000_000


@cache
def recognizer(kind: str) -> Recognizer:
    """Return a small recogniser, with or without segments, a second pass and prefix beam search."""
    path = KEPT / "models" / "exported.safetensors"
    if kind == "plain":
        return asrkit.load(path, backend="eager")
    ends = asrkit.Endpointer(pause_ms=100)
    return asrkit.load(
        path, backend="eager", endpointer=ends, second_pass="full", search="prefix_beam"
    )


def call_seeds(folder: Path) -> None:
    for number, (path, messages) in enumerate(CALLS.items()):
        lines = map(json.dumps, [[path], *messages])
        (folder / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    sound = (KEPT / "audio" / "0.flac").read_bytes()
    for name, (address, kind, before, after) in UPLOADS.items():
        head = json.dumps([address, kind]).encode()
        (folder / f"{name}.bin").write_bytes(head + b"\n" + before + sound + after)


def call(path: Path, said: list[str]) -> str:
    """Make a call in this process: a line for the address, then the messages or an upload."""
    head, _, body = path.read_bytes().partition(b"\n")
    try:
        address, *kinds = map(str, json.loads(head))
    except (ValueError, TypeError, RecursionError):
        return ""
    if not address.startswith("/") or not address.isascii() or not address.isprintable():
        return ""
    server = Server({"m": recognizer("segments")}, Limits(resume_s=0.1, silence_s=2, header_s=1))
    with suppress(WebSocketDisconnect), ExitStack() as stack:
        app = app_of(server)
        client = stack.enter_context(TestClient(app, base_url="http://127.0.0.1"))
        if path.suffix == ".bin":
            head = {"Content-Type": kinds[0] if kinds and kinds[0].isascii() else "audio/wav"}
            answer = client.post(address, content=body, headers=head)
            return f"status {answer.status_code}" if answer.status_code >= 500 else ""
        socket = stack.enter_context(client.websocket_connect(address))
        for line in body.split(b"\n"):
            message = None
            with suppress(ValueError, KeyError, TypeError, RecursionError):
                message = base64.b64decode(json.loads(line)["bytes"])
            if message is None:
                socket.send_text(line.decode(errors="replace"))
            else:
                socket.send_bytes(message)
    return ""


def number_seeds(folder: Path) -> None:
    draw = random.Random(0)
    for number in range(60):
        values = {
            "signal": SIGNALS[number % len(SIGNALS)], "rate": RATES[number % len(RATES)],
            "channels": draw.choice([1, 1, 2, 64]), "seconds": draw.choice([0.0, 0.01, 0.5, 3.0]),
            "packet": draw.choice([1, 7, 160, 100_000]),
            "kind": draw.choice(["plain", "segments"]),
        }  # fmt: skip
        (folder / f"{number:02}.json").write_text(json.dumps(values))


def samples_of(signal_name: str, shape: tuple[int, int]) -> np.ndarray:
    """Return samples (n, channels) of a kind."""
    found = (0.1 * np.random.default_rng(0).standard_normal(shape)).astype(np.float32)
    middle = slice(len(found) // 2, len(found) // 2 + 3)
    if signal_name in ("nan", "inf"):
        found[middle] = float(signal_name)
    elif signal_name == "square":
        found = np.sign(found)
    elif signal_name == "int16":
        found = (found * 32767).astype(np.int16)
    return found * {"silence": 0, "denormal": 1e-40, "loud": 999}.get(signal_name, 1) + (
        np.float32(0.9) if signal_name == "dc" else found.dtype.type(0)
    )


def numbers(path: Path, said: list[str]) -> str:
    """Stream odd samples in packets; the text is that of the whole, and every number is finite."""
    try:
        spec = json.loads(path.read_bytes())
        n, channels = int(spec["seconds"] * spec["rate"]), int(spec["channels"])
        step, rate, kind = int(spec["packet"]), spec["rate"], str(spec["kind"])
        if max(n, 1) * channels > MOST_SAMPLES or channels < 1 or step < 1 or n / step > 50_000:
            return ""
        if spec["seconds"] > MOST_SECONDS:
            return ""
        samples = samples_of(str(spec["signal"]), (n, channels))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, MemoryError):
        return ""
    loaded = recognizer(kind)
    try:
        whole = loaded.transcribe(samples, rate)
    except UserError as error:
        refused = str(error)
    else:
        refused = ""
    try:
        session = loaded.start(sample_rate=rate)
        for first in range(0, max(n, 1), step):  # an empty recording is one empty packet
            session.accept(samples[first : first + step])
        found = session.finish()
    except UserError as error:
        return "" if refused else f"refused in packets: {error}"
    if refused:
        return f"accepted in packets: {refused}"
    if found.text != whole.text:
        return f"another text: {found.text!r:.80} in packets, {whole.text!r:.80} as a whole"
    times = [t for word in found.words for t in (word.start, word.end, word.confidence)]
    return "" if np.isfinite(times).all() else "a number of a word is not finite"


LIVE = {
    "calls": Part(call_seeds, call, 2048),
    "numbers": Part(number_seeds, numbers, 2048),
}
