"""Uploads: decoded in other processes, whose ends and whose clients' ends leave nothing behind."""

import asyncio
import io
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, suppress
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile

from asrkit.runtime import Recognizer
from asrkit.serve import uploads
from asrkit.serve.decode import NICE
from asrkit.serve.server import Limits, Server
from asrkit.serve.uploads import Decoders
from tests.running import python, wait_until
from tests.serve import decoders
from tests.serve.running import Recordings, serving
from tests.serve.test_processes import address_of, running
from tests.serve.test_stream import converse, in_bytes, start, text_of

URL = "http://{}/v1/audio/transcriptions"
linux = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")


def upload(address: str, path: Path) -> httpx.Response:
    files = {"file": (path.name, path.read_bytes())}
    return httpx.post(URL.format(address), files=files, timeout=120)


@pytest.fixture
def noise(tmp_path: Path) -> Path:
    """A second in two channels at 44.1 kHz."""
    path = tmp_path / "noise.wav"
    samples = np.random.default_rng(0).normal(0, 0.1, (44100, 2)).astype(np.float32)
    soundfile.write(path, samples, 44100, "PCM_16")
    return path


BROKEN = [
    (decoders.hang, 413, "takes more than 4 s"),
    (decoders.abort, 400, "the decoder process has ended"),
    (decoders.stop_within_a_sample, 400, "wrong samples"),
    (decoders.say_a_wrong_rate, 400, "wrong header"),
    (decoders.meet_strangers, 200, ""),
    (decoders.send_nan, 400, "is nan"),
    (decoders.write_escapes, 400, "\\x1b[31mred"),
    (decoders.fill_memory, 413, "takes more than 300 MB of memory"),
    (decoders.compute, 413, "takes more than 4 s"),
    (decoders.open_files, 400, "Too many open files"),
    (decoders.write_a_file, 400, "File too large"),
]


@linux
def test_broken_decoders_cost_one_upload(
    monkeypatch: pytest.MonkeyPatch,
    served: Recognizer,
    noise: Path,
    recordings: Recordings,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path, samples = recordings[0]
    expected, found = served.transcribe(path).text, []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(tmp_path.iterdir())
    limits = Limits(decode_s=4.0, decode_mb=300, header_s=2.0)
    with serving(Server({"m": served}, limits)) as address:
        over = threading.Event()

        def neighbour() -> None:
            while not over.wait(0.1):
                found.append(text_of(converse(start(address), list(in_bytes(samples, 1)))))

        thread = threading.Thread(target=neighbour)
        thread.start()
        try:
            for decode, status, told in BROKEN:
                monkeypatch.setattr(uploads, "decode", decode)
                answer = upload(address, noise)
                assert (answer.status_code, told in answer.text) == (status, True), answer.text
        finally:
            over.set()
            thread.join()
        monkeypatch.undo()
        assert upload(address, path).json()["text"] == expected
    assert "Traceback" not in caplog.text
    assert found
    assert set(found) == {expected}
    assert set(tmp_path.iterdir()) == before


@linux
def test_a_process_has_no_more_memory_for_later_files() -> None:
    """And live calls have priority over it; it starts without torch."""
    done = python(
        "import os, sys, resource, numpy as np; from asrkit.serve import decode\n"
        "sizes, limits = [], []\n"
        "for _ in range(2):\n"
        "    sizes.append(decode.size.__wrapped__()), decode.confine(10**8, 60)\n"
        "    limits.append(resource.getrlimit(resource.RLIMIT_AS)[0])\n"
        "    kept = np.ones(3 * 10**7, np.uint8)\n"
        "print(limits[1] - limits[0], sizes[1] - sizes[0] >= 3 * 10**7,"
        " os.getpriority(os.PRIO_PROCESS, 0), 'torch' in sys.modules)"
    )
    priority = max(NICE, os.getpriority(os.PRIO_PROCESS, 0))
    assert done.stdout.split() == ["0", "True", str(priority), "False"], done.stderr


def test_uploads_wait_for_a_free_process(
    monkeypatch: pytest.MonkeyPatch, served: Recognizer, noise: Path, tmp_path: Path
) -> None:
    """Two are decoded on a machine of one core, one waits, and the fourth is refused."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setenv("TEST_RELEASE", str(tmp_path / "released"))
    server = Server({"m": served}, Limits(decoders=2, uploads_waiting=1, decode_s=120))
    with serving(server) as address, ThreadPoolExecutor(4) as pool:
        monkeypatch.setattr(uploads, "decode", decoders.wait_for_release)
        sent = [pool.submit(upload, address, noise) for _ in range(2)]
        wait_until(lambda: len(server.calls) == 2, 60.0)
        sent += [pool.submit(upload, address, noise) for _ in range(2)]
        refused = next(as_completed(sent)).result()
        (tmp_path / "released").touch()
        assert sorted(each.result().status_code for each in sent) == [200, 200, 200, 503]
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        assert "waiting already" in refused.text
        figures = httpx.get(f"http://{address}/metrics").text
        assert 'asrkit_refused_total{reason="uploads"} 1.0' in figures


def children() -> set[str]:
    """Numbers of this process's children."""
    files = Path("/proc/self/task").glob("*/children")
    return {number for each in files for number in each.read_text().split()}


@linux
def test_no_process_is_left_by_a_client_that_leaves_while_it_starts(
    monkeypatch: pytest.MonkeyPatch, served: Recognizer, noise: Path
) -> None:
    monkeypatch.setattr(uploads, "decode", decoders.connect_late)
    before = children()

    async def leave() -> set[str]:
        pool = Decoders(server)

        async def decode() -> None:
            async with pool.decoding(noise):
                pass

        task = asyncio.ensure_future(decode())
        while not children() - before:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        return children() - before

    with closing(Server({"m": served})) as server:
        assert asyncio.run(leave()) == set()


def test_a_body_is_bounded_before_it_is_read(served: Recognizer) -> None:
    """An endless one is refused when it exceeds the limit."""
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield b'--x\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'
        while sent < 100_000_000:
            sent += 65536
            yield bytes(65536)

    form = {"content-type": "multipart/form-data; boundary=x"}
    with serving(Server({"m": served}, Limits(upload_mb=1))) as address:
        with suppress(httpx.TransportError):  # or the answer comes before the connection is closed
            answer = httpx.post(URL.format(address), content=endless(), headers=form)
            assert answer.status_code == 413
        assert sent < 50_000_000


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


def test_hours_of_silence_whose_clients_leave_keep_no_place(
    served: Recognizer, recordings: Recordings
) -> None:
    server = Server({"m": served}, Limits(decoders=2, uploads_waiting=10))
    data = silence(3600)
    with serving(server) as address:
        gone = [uploading(address, data) for _ in range(6)]
        wait_until(lambda: len(server.calls) == 2)
        for one in gone:
            one.close()
        wait_until(lambda: len(server.calls) == 0)
        path = recordings[0][0]
        assert upload(address, path).json()["text"] == served.transcribe(path).text


def holds_a_file(process: int, folder: Path) -> bool:
    """Whether a process has a file open that is, or was, in a folder."""
    with suppress(OSError):  # one is closed meanwhile
        files = Path(f"/proc/{process}/fd").iterdir()
        return any(os.readlink(each).startswith(f"{folder}/") for each in files)
    return False


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="files without names are Linux's")
@pytest.mark.parametrize(("name", "how"), [("a", signal.SIGTERM), ("a.gsm", signal.SIGKILL)])
def test_a_server_that_ends_leaves_no_upload_behind(
    tmp_path: Path, how: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = ("-m", "asrkit", "serve", "--port", "0", "--streams", "5")
    with (
        running(*command, err=subprocess.PIPE) as process,
        uploading(address_of(process), silence(3600) + bytes(2_000_000), name),
    ):
        wait_until(lambda: holds_a_file(process.pid, tmp_path), 60.0)
        process.send_signal(how)
        process.wait(timeout=30)
    assert list(tmp_path.iterdir()) == []


def test_channels_that_cancel_each_other_out_are_a_warning(
    served: Recognizer, noise: Path, tmp_path: Path
) -> None:
    samples = soundfile.read(noise)[0][:, :1]
    soundfile.write(tmp_path / "x.wav", np.concatenate([samples, -samples], 1), 44100)
    with serving(Server({"m": served})) as address:
        warned = upload(address, tmp_path / "x.wav").headers["X-Asrkit-Warning"]
        assert "channels that cancel each other out" in warned
        assert "X-Asrkit-Warning" not in upload(address, noise).headers  # control
