"""Uploads: nothing of them stays behind, and nobody waits for those whose clients have left."""

import io
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile

from asrkit.runtime import Recognizer
from asrkit.serve.server import Limits, Server
from tests.conftest import PROJECT
from tests.serve.running import Recordings, serving

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
    served: Recognizer, recordings: Recordings
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


def holds_a_file(process: int, folder: Path) -> bool:
    """Whether a process has a file open that is, or was, in a folder."""
    with suppress(OSError):  # one is closed meanwhile
        files = Path(f"/proc/{process}/fd").iterdir()
        return any(os.readlink(each).startswith(f"{folder}/") for each in files)
    return False


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="files without names are Linux's")
@pytest.mark.parametrize(("name", "how"), [("a", signal.SIGTERM), ("a.gsm", signal.SIGKILL)])
def test_a_server_that_ends_leaves_no_upload_behind(tmp_path: Path, how: int, name: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "asrkit", "serve", "--port", "0", "--streams", "5"],
        cwd=PROJECT, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert process.stderr is not None
    address = process.stderr.readline().strip().rpartition("http://")[2].rstrip("/")
    threading.Thread(target=process.stderr.read, daemon=True).start()
    with uploading(address, silence(3600) + bytes(2_000_000), name):
        wait_until(lambda: holds_a_file(process.pid, tmp_path), 60.0)
        process.send_signal(how)
        process.wait(timeout=30)
    assert list(tmp_path.iterdir()) == []
