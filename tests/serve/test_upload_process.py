"""Uploads are decoded in processes of their own: whatever happens to these, the server goes on."""

import asyncio
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile

from asrkit.runtime import Recognizer
from asrkit.serve import upload_process, uploads
from asrkit.serve.server import Limits, Server
from tests.conftest import PROJECT
from tests.serve.running import serving
from tests.serve.test_stream import converse, in_bytes, start, text_of

URL = "http://{}/v1/audio/transcriptions"
linux = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")


def upload(address: str, path: Path) -> httpx.Response:
    files = {"file": (path.name, path.read_bytes())}
    return httpx.post(URL.format(address), files=files, timeout=30)


@pytest.fixture
def noise(tmp_path: Path) -> Path:
    """A second in two channels at 44.1 kHz."""
    path = tmp_path / "noise.wav"
    samples = np.random.default_rng(0).normal(0, 0.1, (44100, 2)).astype(np.float32)
    soundfile.write(path, samples, 44100, "PCM_16")
    return path


def behaving(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Decoders run this program instead."""
    monkeypatch.setattr(uploads, "COMMAND", (sys.executable, "-c", program))


def frames(*parts: tuple[bytes, bytes], more: str = "") -> str:
    """A program that writes frames."""
    data = b"".join(upload_process.FRAME.pack(kind, len(data)) + data for kind, data in parts)
    return f"import sys; sys.stdin.readline(); sys.stdout.buffer.write({data!r}); {more}"


HEADER = (upload_process.HEADER, upload_process.FORMAT.pack(16000, 8000, 1))
BROKEN = {
    frames(HEADER, more="sys.stdout.flush(); import time; time.sleep(60)"): (
        413,
        "takes more than 4 s",
    ),
    "import os; os.abort()": (400, "SIGABRT"),
    "raise SystemExit(3)": (400, "status 3"),
    frames(HEADER, (upload_process.SAMPLES, bytes(4 * 8001)), (upload_process.END, b"")): (
        400,
        "wrong samples",
    ),
    frames(HEADER, (upload_process.SAMPLES, bytes(3)), (upload_process.END, b"")): (
        400,
        "wrong samples",
    ),
    frames((upload_process.HEADER, upload_process.FORMAT.pack(0, 8000, 1))): (400, "wrong header"),
    frames((upload_process.HEADER, bytes(99))): (400, "wrong frame"),
    frames((upload_process.SAMPLES, b"")): (400, "no header"),
    frames(
        HEADER, (upload_process.SAMPLES, np.float32([np.nan]).tobytes()), (upload_process.END, b"")
    ): (
        400,
        "finite",
    ),
    frames((upload_process.ERROR, b"\x1b[31mred\xff")): (400, "\\x1b[31mred"),
    f"import sys; sys.stdout.buffer.write({pickle.dumps(print)!r})": (400, "wrong frame"),
    "import sys; sys.stdout.buffer.write(b'x' * 100_000)": (400, "wrong frame"),
}


@linux
def test_broken_decoders_cost_one_upload(
    monkeypatch: pytest.MonkeyPatch,
    served: Recognizer,
    noise: Path,
    recordings: list[tuple[Path, np.ndarray]],
    tmp_path: Path,
) -> None:
    path, samples = recordings[0]
    expected, found = served.transcribe(path).text, []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before, others = set(tmp_path.iterdir()), children()  # of servers of other tests
    with serving(Server({"m": served}, Limits(decode_s=4.0))) as address:
        over = threading.Event()

        def neighbour() -> None:
            while not over.is_set():
                found.append(text_of(converse(start(address), list(in_bytes(samples, 1)))))

        thread = threading.Thread(target=neighbour)
        thread.start()
        try:
            for program, (status, told) in BROKEN.items():
                behaving(monkeypatch, program)
                answer = upload(address, noise)
                assert (answer.status_code, told in answer.text) == (status, True), answer.text
        finally:
            over.set()
            thread.join()
        monkeypatch.undo()
        assert upload(address, path).json()["text"] == expected
    assert found
    assert set(found) == {expected}
    assert set(tmp_path.iterdir()) == before
    assert children() <= others


def children() -> set[str]:
    """This process's decoders."""
    pids: list[str] = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has ended since
            pids += (task / "children").read_text().split()
    return {pid for pid in pids if b"upload_process" in Path(f"/proc/{pid}/cmdline").read_bytes()}


GREEDY = """
import sys
from asrkit.serve import upload_process
def write(path, sink, split):
    {work}
    upload_process.write_frame(sink, upload_process.HEADER, upload_process.FORMAT.pack(16000, 1, 1))
upload_process.write = write
{change}
upload_process.main(*sys.argv[1:4])
"""


@linux
@pytest.mark.parametrize(
    ("work", "status", "output"),
    [
        ("upload_process.np.empty(10**9, 'u1')", 0, upload_process.NO_MEMORY),
        ("while sum(range(1000)): pass", -24, b""),
        ("open(sys.argv[4], 'wb', 0).write(bytes(999)) == 999 or 1 / 0", 1, b""),
        ("[open('/dev/null') for _ in range(50)]", 1, b""),
    ],
)
def test_what_a_decoder_may_use(tmp_path: Path, work: str, status: int, output: bytes) -> None:
    def run(change: str = "") -> tuple[int, bytes]:
        program = GREEDY.format(work=work, change=change)
        done = subprocess.run(
            [sys.executable, "-c", program, "500000000", "1", "100", tmp_path / "x"],
            input=b"x\n\n", cwd=PROJECT, stdout=subprocess.PIPE,
        )  # fmt: skip
        return done.returncode, done.stdout[:1]

    assert run() == (status, output)
    if status >= 0:  # control: what is left free works
        assert run("upload_process.confine = lambda *_: None") == (0, upload_process.HEADER)


def test_it_starts_without_torch() -> None:
    program = "import sys, asrkit.serve.upload_process; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True)
    assert done.stdout.strip() == b"False", done.stderr


@pytest.mark.parametrize("suffix", [".wav", ".flac", ".ogg", ".m4a"])
def test_the_samples_are_those_of_the_file(
    address: str,
    served: Recognizer,
    noise: Path,
    suffix: str,
    recordings: list[tuple[Path, object]],
) -> None:
    """Two channels at 44.1 kHz, a recording in one of them."""
    path, (samples, _) = noise.with_suffix(suffix), soundfile.read(recordings[0][0])
    both = np.stack(
        [np.interp(np.arange(0, len(samples), 16 / 44.1), np.arange(len(samples)), samples)] * 2, 1
    )
    both[:, 1] *= 0.5
    if suffix == ".m4a":
        encode(path, both)
    else:
        soundfile.write(path, both, 44100)
    expected = served.transcribe(path)
    assert expected.text
    assert upload(address, path).json()["text"] == expected.text


def encode(path: Path, samples: np.ndarray) -> None:
    """AAC."""
    av = pytest.importorskip("av")
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=44100)
        stream.layout = "stereo"
        data = (samples * 32767).astype(np.int16).reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(data, format="s16", layout="stereo")
        frame.rate = 44100
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            container.mux(packet)


def test_uploads_wait_for_a_free_process(
    monkeypatch: pytest.MonkeyPatch, served: Recognizer, noise: Path
) -> None:
    """One is decoded, one waits, the third is refused; and afterwards all is free again."""
    server = Server({"m": served}, Limits(decoders=1, uploads_waiting=1, decode_s=1.5))
    with serving(server) as address, ThreadPoolExecutor(3) as pool:
        behaving(monkeypatch, "import time; time.sleep(60)")
        answers = list(pool.map(lambda _: upload(address, noise), range(3)))
        assert sorted(each.status_code for each in answers) == [413, 413, 503]
        refused = max(answers, key=lambda each: each.status_code)
        assert refused.headers["retry-after"]
        assert "waiting already" in refused.text
        figures = httpx.get(f"http://{address}/metrics").text
        assert 'asrkit_refused_total{reason="uploads"} 1.0' in figures
        monkeypatch.undo()
        for _ in range(20):  # on a busy machine a process may take longer than decode_s to start
            if (status := upload(address, noise).status_code) == 200:
                break
            assert status == 413  # not 503: there is a place
        else:
            pytest.fail("no upload was decoded")


def test_control_more_processes_take_more(
    monkeypatch: pytest.MonkeyPatch, served: Recognizer, noise: Path
) -> None:
    server = Server({"m": served}, Limits(decoders=3, uploads_waiting=0, decode_s=1.0))
    with serving(server) as address, ThreadPoolExecutor(3) as pool:
        behaving(monkeypatch, "import time; time.sleep(60)")
        answers = list(pool.map(lambda _: upload(address, noise), range(3)))
        assert [each.status_code for each in answers] == [413, 413, 413]


def test_a_body_is_bounded_before_it_is_read(served: Recognizer) -> None:
    """An endless one is refused when it exceeds the limit; so are forms of other kinds."""
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield b'--x\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'
        while sent < 100_000_000:
            sent += 65536
            yield bytes(65536)

    form = {"content-type": "multipart/form-data; boundary=x"}
    with serving(Server({"m": served}, Limits(upload_mb=1))) as address:
        url = URL.format(address)
        with suppress(httpx.TransportError):  # or the answer comes before the connection is closed
            assert httpx.post(url, content=endless(), headers=form).status_code == 413
        assert sent < 50_000_000
        for headers, body, told in (
            ({}, b"", "file"),
            ({"content-type": "application/json"}, b"{}", "multipart/form-data"),
            ({"content-type": "application/x-www-form-urlencoded"}, b"a=b&" * 9999, "multipart"),
            ({"content-type": "multipart/form-data"}, b"", "boundary"),
            (form, b"--x\r\ngarbage", ""),
            (form, b'--x\r\ncontent-disposition: form-data; name="a"\r\n\r\nb\r\n' * 30, "fields"),
        ):
            answer = httpx.post(url, content=body, headers=headers)
            assert answer.status_code == 400, answer.text
            assert told in answer.json()["error"]["message"]


@pytest.mark.skipif(not hasattr(os, "getpriority"), reason="not on Windows")
@pytest.mark.parametrize("seconds", [10, 60])
def test_long_files_leave_the_processor_to_others(tmp_path: Path, seconds: int) -> None:
    """Live calls come first, then short files."""

    async def found() -> int:
        decoders, most = uploads.Decoders(Server({}, Limits())), 0
        async with decoders.decoding(path) as decoding:
            process = decoding._process
            assert process is not None
            async for _ in decoding.blocks():
                with suppress(ProcessLookupError):  # it has ended
                    most = max(most, os.getpriority(os.PRIO_PROCESS, process.pid))
        await decoders.close()
        return most - os.nice(0)

    path = tmp_path / "a.wav"
    soundfile.write(path, np.zeros(16_000 * seconds, np.int16), 16_000)
    more = upload_process.MORE_NICE if seconds > upload_process.LONG_S else 0
    assert asyncio.run(found()) == upload_process.NICE + more
