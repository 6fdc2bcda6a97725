"""asrkit listen and its RemoteSession: the text is that of the same samples, however often cut."""

import json
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
import soundfile
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from asrkit import UserError
from asrkit.commands.serve import arguments_of, recognizers, server_of
from asrkit.runtime import Recognizer
from asrkit.serve.client import RemoteSession
from asrkit.serve.dialects.messages import Start
from asrkit.serve.server import Limits, Server
from tests.running import run
from tests.serve.running import Recordings, call_of, serving

Output = pytest.CaptureFixture[str]


class Cutter:
    """A TCP proxy that cuts its first connections, each after a random number of bytes.

    Args:
        address: of the server, host and port.
        cuts: connections that are cut.
        seed: of the numbers.
        most: bytes before a cut.
    """

    def __init__(self, address: str, cuts: int, seed: int, most: int) -> None:
        self.most = most
        host, _, port = address.partition(":")
        self.target, self.cuts, self.draw = (host, int(port)), cuts, random.Random(seed)
        self.done = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        with suppress(OSError):
            while True:
                near = self.listener.accept()[0]
                far = socket.create_connection(self.target)
                left = [self.draw.randrange(2_000, self.most)] if self.done < self.cuts else None
                self.done += 1
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(
                        target=self.copy, args=(source, sink, left), daemon=True
                    ).start()

    def copy(self, source: socket.socket, sink: socket.socket, left: list[int] | None) -> None:
        with suppress(OSError):
            while data := source.recv(2048):
                if left is not None:
                    left[0] -= len(data)
                    if left[0] < 0:
                        break
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextmanager
def cutting(address: str, cuts: int, seed: int, most: int = 60_000) -> Iterator[Cutter]:
    cutter = Cutter(address, cuts, seed, most)
    try:
        yield cutter
    finally:
        cutter.listener.close()


def lines_of(served: Recognizer, samples: np.ndarray) -> str:
    return "".join(f"{each.text}\n" for each in served.transcribe(samples).segments)


def test_live_text(address: str, recordings: Recordings, capsys: Output) -> None:
    options = ["--format", "jsonl", "--simulate-realtime"]
    assert run("listen", f"ws://{address}/v1/stream", recordings[0][0], *options) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert any(each["type"] == "partial" and each["text"] for each in found)


@pytest.mark.parametrize("form", ["txt", "jsonl"])
def test_listen_prints_what_stream_prints(
    recordings: Recordings, tmp_path: Path, capsys: Output, form: str
) -> None:
    """Of one file at 8 kHz, with pauses of 0.8 and 1.3 s and more than 16 bits, by the default."""
    pauses = [np.zeros(round(16 * ms), np.float32) for ms in (800, 1300, 0)]
    parts = [samples.astype(np.float32) / 32768 for _, samples in recordings[:3]]
    mono = np.concatenate([each for pair in zip(parts, pauses, strict=True) for each in pair])
    path = tmp_path / "x.wav"
    soundfile.write(path, np.stack([mono, 0.7 * mono], axis=1)[::2], 8000, subtype="FLOAT")
    options, printed = arguments_of().parse_intermixed_args([]), []
    with serving(server_of(options, recognizers(options))) as address:
        for command in (["stream", "--model", "small-en-alnum"], ["listen", f"http://{address}"]):
            assert run(*command, path, "--format", form) == 0
            lines = capsys.readouterr().out.splitlines()
            printed.append([each for each in lines if '"type": "partial"' not in each])
    assert printed[0] == printed[1]
    assert len(printed[0]) == 3


def test_cut_anywhere(
    address: str, served: Recognizer, recordings: Recordings, tmp_path: Path, capsys: Output
) -> None:
    samples = np.concatenate([samples for _, samples in recordings])
    soundfile.write(tmp_path / "x.wav", samples, 16000)
    with cutting(address, cuts=6, seed=0) as cutter:
        assert run("listen", f"http://{cutter.address}", tmp_path / "x.wav") == 0
    shown = capsys.readouterr()
    assert shown.out == lines_of(served, samples)
    assert cutter.done >= 6
    assert shown.err.count("is lost; reconnecting") >= 5
    assert shown.err.count("the connection is back") >= 5


def session_at(address: str, **options: object) -> RemoteSession:
    return RemoteSession(f"http://{address}", Start(type="start"), **options)  # type: ignore[arg-type]


def test_tokens_and_full_servers(
    served: Recognizer, recordings: Recordings, tmp_path: Path, capsys: Output,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    path, samples = recordings[0]
    for name, content in (("token", "secret\n"), ("wrong", "wrong")):
        (tmp_path / name).write_text(content)
    soundfile.write(tmp_path / "long.wav", np.tile(samples, 2), 16000)
    token = ["--token-file", tmp_path / "token"]
    server = Server({"m": served}, Limits(streams=1, call_s=len(samples) / 16000), token="secret")
    with serving(server) as address:
        url = f"http://{address}"
        monkeypatch.setenv("ASRKIT_TOKEN", "secret")
        for options in ([], token):
            assert run("listen", url, path, *options) == 0
            assert capsys.readouterr().out == lines_of(served, samples)
        monkeypatch.setenv("ASRKIT_TOKEN", "")  # as compose files pass a variable that is not set
        for options, error in (
            ([url, path], "rejects the call: HTTP 401: the token is"),
            ([url, path, "--token-file", tmp_path / "wrong"], "call: HTTP 401: the token is"),
            ([url, tmp_path / "long.wav", *token], "asrkit listen: the server: a call may last"),
            ([url + "/healthz", path, *token], "no WebSocket is at '/healthz/v1/stream'"),
        ):
            assert run("listen", *options) == 2
            assert error in capsys.readouterr().err
        with closing(session_at(address, token="secret")):
            assert run("listen", url, path, *token) == 2
            error = "the server is full: try again later: all 1 streams are taken"
            assert error in capsys.readouterr().err


def test_a_server_that_does_not_come_back(served: Recognizer, recordings: Recordings) -> None:
    notes: list[str] = []
    with serving(Server({"m": served})) as address:
        session = session_at(address, note=notes.append, patience_s=0.3)
        session.accept(recordings[0][1])
        assert session._connection is not None
        session._connection.socket.close()
    with pytest.raises(UserError, match=r"no connection to ws://.* for 0.3 s: .*refused"):
        session.finish()
    assert "is lost; reconnecting" in notes[0]
    assert not session.finish().is_final  # what came before


STARTED = {"type": "started", "model": "m", "context": "full", "id": "i", "token": "t"}
WORD = {"text": "no", "start": 0.1, "end": 0.2, "confidence": 0.5}
PARTIAL = {
    "type": "partial", "text": "no", "stable": "n", "words": [WORD], "ack": 0, "recognized": 0
}  # fmt: skip
FINAL = {
    "type": "final", "text": "no", "start": 0.1, "end": 0.2, "words": [WORD], "context": "full",
    "ack": 0, "recognized": 0,
}  # fmt: skip
LONG = "x" * 1000
ODD: list[tuple[str, str, str]] = [  # the message in whose place it comes, the odd one, the error
    ("started", json.dumps(STARTED | {"id": LONG}), "not a message of asrkit serve: started.id"),
    ("started", json.dumps(PARTIAL), "did not start the call"),
    ("partial", json.dumps(PARTIAL | {"words": [WORD | {"start": 1e400}]}), "finite number"),
    ("partial", json.dumps(PARTIAL | {"text": "\ud800"}), "not a message of asrkit serve"),
    ("partial", json.dumps(FINAL | {"channel": 1}), "a text of channel 1, which was not sent"),
    ("partial", '{"type": "restart", "after": 5}', ""),  # of a newer server
    ("partial", '{"type": "ended", "ack": 0}', "the server ended the call at sample 0 of"),
    ("partial", json.dumps({"type": "error", "reason": "x", "message": LONG}), "the server: x"),
    ("ended", json.dumps({"type": "error", "reason": "\x1b[2J", "message": "\x1b[2J"}), "\\x1b"),
    ("ended", '{"type": "ended", "ack": "4000", "more": 1}', ""),
]


@contextmanager
def odd_server(place: str, odd: str) -> Iterator[str]:
    """A server whose messages of one type are odd; resumed calls are unknown to it."""

    def talk(client: ServerConnection) -> None:
        messages = {"started": json.dumps(STARTED), "partial": json.dumps(PARTIAL)}
        messages = {**messages, "ended": '{"type": "ended", "ack": 4000}', place: odd}
        if "resume" in str(client.recv()):
            client.send('{"type": "error", "reason": "unknown", "message": "no such call"}')
            return
        client.send(messages["started"])
        for message in client:
            with suppress(ConnectionClosed):  # a client that was told something odd leaves
                if isinstance(message, bytes):
                    client.send(messages["partial"])
                elif "end" in message:
                    client.send(messages["ended"])
                    return

    with serve(talk, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("place", "odd", "error"), ODD)
def test_an_odd_message_of_a_server_is_one_line(
    place: str, odd: str, error: str, tmp_path: Path, capsys: Output
) -> None:
    soundfile.write(tmp_path / "x.wav", np.zeros(4000, np.int16), 16000)
    with odd_server(place, odd) as address:
        status = run("listen", f"http://{address}", tmp_path / "x.wav", "--format", "jsonl")
    shown = capsys.readouterr()
    assert (status, shown.err.count("\n")) == ((2, 1) if error else (0, 0))
    assert error in shown.err
    assert len(shown.err) < 500
    assert shown.err.strip().isprintable()


def test_an_odd_host_is_one_line(tmp_path: Path, capsys: Output) -> None:
    soundfile.write(tmp_path / "x.wav", np.zeros(4000, np.int16), 16000)
    for host in ("x" * 300, "a..b"):
        assert run("listen", f"http://{host}:9", tmp_path / "x.wav") == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_channels(
    served: Recognizer, address: str, recordings: Recordings, tmp_path: Path,
    capsys: Output,
) -> None:  # fmt: skip
    """However often the connection is cut, the segments of each channel are those of it alone."""
    call = call_of(recordings, 1, 2)
    soundfile.write(tmp_path / "call.wav", call, 16000)
    with cutting(address, cuts=4, seed=1, most=24_000) as cutter:
        options = ["--channel", "split", "--format", "jsonl"]
        assert run("listen", f"http://{cutter.address}", tmp_path / "call.wav", *options) == 0
        assert cutter.done == 5
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for channel, name in enumerate(["channel 0", "channel 1"]):
        own = [each for each in lines if (each["channel"], each["speaker"]) == (channel, name)]
        finals = [(each["text"], each["start"]) for each in own if each["type"] == "final"]
        expected = served.transcribe(call[:, channel]).segments
        assert finals == [(each.text, each.spoken) for each in expected]
