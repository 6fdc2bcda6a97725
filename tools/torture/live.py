"""Calls of a server, streams of odd numbers, and commands that are killed."""

import base64
import json
import os
import random
import shutil
import signal
import time
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

import asrkit
from asrkit.__main__ import main
from asrkit.errors import UserError
from asrkit.model_file import read_tensors
from asrkit.runtime import Recognizer
from asrkit.serve.app import app_of
from asrkit.serve.server import Limits, Server
from tools.torture.cage import Part

KEPT = Path(__file__).parents[2] / "tests" / "kept"
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
SIGNALS = ("noise", "silence", "dc", "square", "nan", "inf", "denormal", "loud", "int16")
RATES = (1, 7, 999, 1000, 7999, 8000, 11025, 16000, 22050, 44100, 48000, 96000, 384000, 768000)
MOST_SAMPLES = 1_000_000
MODEL = "{kept}/models/exported.safetensors"
COMMANDS: dict[str, list[str]] = {  # {kept} is the folder of kept files, {out} a new folder
    "pack": ["pack", "--model", MODEL, "--output", "{out}/a.safetensors"],
    "export": ["export", "--format", "onnx", "--model", MODEL,
               "--chunk-ms", "160", "--left-ms", "320", "--output", "{out}/a.onnx",
               "--audio", "{kept}/audio/0.flac"],
    "shard": ["data", "shard", "{kept}/train.jsonl", "--output", "{out}/shards",
              "--shard-size", "2"],
    "import": ["data", "import", "manifest", "{kept}/train.jsonl", "--output", "{out}", "--copy",
               "--force", "--jobs", "1"],
    "train": ["train", "--config", "{kept}/config.yaml", "data.train={kept}/train.jsonl",
              "data.dev={kept}/dev.jsonl", "training.output_dir={out}", "--resume",
              "training.checkpoint_every_steps=1"],
}  # fmt: skip


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


def call(path: Path, said: list[str]) -> str:
    """Make a call in this process: a line for the address, then one for each message."""
    address, *lines = path.read_bytes().split(b"\n")
    with suppress(ValueError, IndexError, TypeError):
        (address,) = json.loads(address)
    if not isinstance(address, str) or not address.startswith("/") or not address.isascii():
        return ""
    server = Server({"m": recognizer("segments")}, Limits(resume_s=0.1, silence_s=2, header_s=1))
    with (
        suppress(WebSocketDisconnect),
        TestClient(app_of(server), base_url="http://127.0.0.1") as client,
        client.websocket_connect(address) as socket,
    ):
        for line in lines:
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
        samples = samples_of(str(spec["signal"]), (n, channels))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, MemoryError):
        return ""
    if samples.size > MOST_SAMPLES or step < 1 or n / step > 50_000:
        return ""
    loaded = recognizer(kind)
    try:
        whole = loaded.transcribe(samples, rate)
    except UserError as error:
        refused = str(error)
    else:
        refused = ""
    session = loaded.start(sample_rate=rate)
    try:
        for first in range(0, n, step):
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


def kill_seeds(folder: Path) -> None:
    for name in COMMANDS:
        for i in range(8):
            (folder / f"{name}{i}.json").write_text(json.dumps({"command": name, "after": i / 8}))


def argv(name: str, out: Path) -> list[str]:
    return [each.format(kept=KEPT, out=out) for each in COMMANDS[name]]


def run(name: str, out: Path, after: float | None = None) -> tuple[bool, float]:
    """Run a command in a fork, perhaps killed after some seconds; return success and seconds."""
    began, process = time.monotonic(), os.fork()
    if not process:
        status = 1
        try:
            status = main(argv(name, out))
        except BaseException:
            traceback.print_exc()
        os._exit(status)
    if after is not None:
        time.sleep(after)
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    return status == 0, time.monotonic() - began


@cache
def reference(name: str) -> tuple[dict[str, Any], float]:
    """Return what a command writes without a kill, and its seconds."""
    out = Path.cwd() / f"whole-{name}" / "out"  # as deep as others: manifests have relative paths
    done, seconds = run(name, out)
    if not done:
        raise RuntimeError(f"{name}: {Path('noise.txt').read_text()[-2000:]}")
    return contents(out), seconds


def contents(folder: Path) -> dict[str, Any]:
    """Return the final files of a command: bytes, or the tensors of models."""
    return {
        str(path.relative_to(folder)): (
            {k: t.numpy().tobytes() for k, t in read_tensors(path)[0].items()}
            if path.suffix == ".safetensors" else path.read_bytes()
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".asrkit-") and is_compared(path)
    }  # fmt: skip


def is_compared(path: Path) -> bool:
    return path.suffix not in (".log", ".pt", ".json", ".yaml") or path.parent.name != "out"


def kill(path: Path, said: list[str]) -> str:
    """Kill a command, look at its files, run it again, and compare with a run without a kill."""
    try:
        spec = json.loads(path.read_bytes())
        name, share = spec["command"], float(spec["after"]) % 1.0
        whole, seconds = reference(name)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return ""
    out = path.parent / "out"
    run(name, out, after=share * seconds)
    for file, data in contents(out).items():
        if name != "train" and file in whole and whole[file] != data:
            return f"a half file after the kill: {file} of {name}"
    if name == "shard":
        shutil.rmtree(out, ignore_errors=True)
    done, _ = run(name, out)
    if not done:
        return f"cannot be run again: {name}"
    found = contents(out)
    differ = [file for file in whole.keys() | found.keys() if whole.get(file) != found.get(file)]
    left = [each.name for each in out.rglob(".asrkit-*")]
    if differ or left:
        return f"other files than without a kill: {name}: {differ} {left}"
    return ""


LIVE = {
    "calls": Part("messages of each protocol of the server", call_seeds, call, 2048),
    "numbers": Part("odd samples, rates, channels and packets", number_seeds, numbers, 2048),
    "kills": Part("commands killed at random moments", kill_seeds, kill, 4096, warm=False),
}
