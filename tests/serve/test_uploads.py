"""Uploads: nothing of them stays behind, and nobody waits for those whose clients have left."""

import asyncio
import io
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from asyncio.subprocess import Process
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import Mock

import httpx
import numpy as np
import pytest
import soundfile

from asrkit.runtime import Recognizer
from asrkit.serve import uploads
from asrkit.serve.server import Limits, Server
from asrkit.serve.upload_process import FRAME, SAMPLES
from asrkit.serve.uploads import Decoders, Decoding
from tests.conftest import PROJECT
from tests.serve.running import serving

BODY = b'--b\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\n\r\n%s\r\n--b--\r\n'
HEAD = (
    b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n"
    b"Content-Type: multipart/form-data; boundary=b\r\n\r\n"
)


def silence(seconds: int) -> bytes:
    """FLAC: an hour takes 100 kB."""
    file = io.BytesIO()
    soundfile.write(file, np.zeros(16_000 * seconds, np.int16), 16_000, format="FLAC")
    return file.getvalue()


def uploading(address: str, data: bytes, name: str = "a") -> socket.socket:
    """A connection that has uploaded a file, and waits for its text."""
    host, _, port = address.partition(":")
    one = socket.create_connection((host, int(port)), timeout=10)
    body = BODY % (name.encode(), data)
    one.sendall(HEAD % len(body) + body)
    return one


def wait_until(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_hours_of_silence_whose_clients_leave_keep_no_place(
    served: Recognizer, recordings: list[tuple[Path, np.ndarray]]
) -> None:
    server = Server({"m": served}, Limits(decoders=2, uploads_waiting=10))
    data = silence(3600)
    with serving(server) as address:
        gone = [uploading(address, data) for _ in range(6)]
        wait_until(lambda: server.streams == 2)
        for one in gone:
            one.close()
        wait_until(lambda: server.streams == 0)
        path = recordings[0][0]
        files = {"file": (path.name, path.read_bytes())}
        url = f"http://{address}/v1/audio/transcriptions"
        answer = httpx.post(url, files=files, timeout=30)
        assert answer.json()["text"] == served.transcribe(path).text


@pytest.mark.parametrize("ticks", range(12))
def test_decoding_ends_whenever_its_client_leaves(
    served: Recognizer, tmp_path: Path, ticks: int
) -> None:
    """Also in the turn of the event loop in which more samples arrive."""

    async def decode(process: Mock) -> None:
        decoding = Decoding(Decoders(server), tmp_path, "")
        decoding.sample_rate, decoding.num_samples = 16_000, 10**9
        decoding._process, decoding._is_long = process, True
        async for _ in decoding.blocks():
            pass

    async def leave() -> None:
        pipe = asyncio.StreamReader()
        decoding = asyncio.ensure_future(decode(Mock(spec=Process, stdout=pipe)))
        await asyncio.sleep(0.05)
        pipe.feed_data(FRAME.pack(SAMPLES, 4) + bytes(4))
        for _ in range(ticks):
            await asyncio.sleep(0)
        decoding.cancel()
        await asyncio.wait([decoding], timeout=1)
        assert decoding.cancelled()

    server = Server({"m": served})
    asyncio.run(leave())
    server.close()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="files without names are Linux's")
@pytest.mark.parametrize(
    ("name", "how"),
    [("a", signal.SIGTERM), ("a.gsm", signal.SIGKILL),
     *(pytest.param(*each, marks=pytest.mark.slow)
       for each in (("a", signal.SIGKILL), ("a.gsm", signal.SIGTERM)))],
)  # fmt: skip
def test_a_server_that_ends_leaves_no_upload_behind(tmp_path: Path, how: int, name: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "asrkit", "serve", "--port", "0", "--streams", "5"],
        cwd=PROJECT, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert process.stderr is not None
    address = process.stderr.readline().strip().rpartition("http://")[2].rstrip("/")
    threading.Thread(target=process.stderr.read, daemon=True).start()
    with uploading(address, silence(3600) + bytes(2_000_000), name):
        time.sleep(1.5)
        process.send_signal(how)
        process.wait(timeout=30)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_stated", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_short_file_does_not_wait_for_long_ones(
    served: Recognizer, recordings: list[tuple[Path, np.ndarray]], is_stated: bool
) -> None:
    """Also where their headers do not state how long they are."""
    server = Server({"m": served}, Limits(decoders=4, uploads_waiting=10))
    data = silence(3 * 3600) if is_stated else unstated(silence(3 * 3600))
    path = recordings[0][0]
    with serving(server) as address, ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(uploading(address, data))
        time.sleep(2)
        files = {"file": (path.name, path.read_bytes())}
        url = f"http://{address}/v1/audio/transcriptions"
        answer = httpx.post(url, files=files, timeout=60)
        assert answer.json()["text"] == served.transcribe(path).text
        assert server.streams >= 1  # the long ones go on


def unstated(flac: bytes) -> bytes:
    """A FLAC file whose header does not state its length, as from a pipe."""
    at = flac.index(b"fLaC") + 4 + 4 + 13  # four bits and four bytes of STREAMINFO
    return flac[:at] + bytes([flac[at] & 0xF0]) + bytes(4) + flac[at + 5 :]


@pytest.mark.slow
def test_a_long_file_that_waits_loses_and_repeats_nothing(
    served: Recognizer, recordings: list[tuple[Path, np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives its process to others, and another one begins it anew."""
    monkeypatch.setattr(uploads, "LONG_S", 3.0)
    samples = np.concatenate([each for _, each in recordings])
    file = io.BytesIO()
    soundfile.write(file, samples, 16_000, format="FLAC")
    server = Server({"m": served}, Limits(decoders=4, uploads_waiting=10))
    url = "http://{}/v1/audio/transcriptions"
    with serving(server) as address:
        for data in (file.getvalue(), unstated(file.getvalue())):
            others = [uploading(address, silence(3600)) for _ in range(3)]
            wait_until(lambda: server.streams == 3)
            closing = threading.Timer(1.0, lambda others: [one.close() for one in others], [others])
            closing.start()
            found = httpx.post(url.format(address), files={"file": ("a", data)}, timeout=30)
            closing.join()
            assert found.json()["text"] == served.transcribe(samples, 16_000).text
