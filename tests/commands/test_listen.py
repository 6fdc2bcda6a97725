"""asrkit listen without a server: mistakes are one line. With one: tests/serve."""

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

Shown = Callable[..., str]
pytestmark = pytest.mark.usefixtures("collected")  # texts are nested deeply
HIDDEN = ("word", "secret")


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "http://", "http://x:y", "http://[x"])
def test_what_is_no_url(url: str, wav: Path, refused: Shown) -> None:
    assert refused("listen", url, wav) == (
        f"asrkit listen: the server must be a URL like http://127.0.0.1:8000, got {url!r}\n"
    )


def test_no_server_no_file_no_token(wav: Path, refused: Shown) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://user:word@127.0.0.1:{listener.getsockname()[1]}/?token=secret"
    said = refused("listen", url, wav)
    assert "no connection to ws://127.0.0.1:" in said
    assert "Connection refused" in said
    assert not any(each in said for each in HIDDEN)
    (marked := wav.with_name("marked")).write_bytes(b"\xef\xbb\xbfkey 123\r\n")  # by PowerShell 5
    (words := wav.with_name("words")).write_text("x" * 201)
    for options, message in (
        (["none.wav"], "none.wav does not exist"),
        ([], "needs one source: FILE, --mic, or -"),
        ([wav, "--token-file", "none"], "--token-file"),
        ([wav, "--token-file", marked], "must be one or more visible ASCII"),  # the mark is none
        ([wav, "--hotwords", words], "hotwords"),
    ):
        said = refused("listen", url, *options)
        assert message in said
        assert "123" not in said
    for start in ("http://user:word@", "http://user:wo/rd@", "user:w@rd@"):
        said = refused("listen", f"{start}127.0.0.1:99999/?token=secret", wav)
        assert f"got '{start.partition('user')[0]}127.0.0.1:99999/'" in said


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        ("", "220 mail ready", "no connection to ws://127.0.0.1:"),
        ("503 Busy", '{"error": {"message": "starts"}}', "HTTP 503: starts"),
        ("502 Bad", "<html>", "no connection to ws://127.0.0.1:"),
        ("404 None", '{"error": {"message": "not here"}}', "rejects the call: HTTP 404: not here"),
        (
            "404 None",
            '{"error": "not here"}',
            ": HTTP 404: the token, the path or the server is wrong",
        ),
        ("404 None", "[" * 100_000, ": HTTP 404: the token, the path or the server is wrong"),
    ],
)
def test_another_program_at_the_port(
    status: str, body: str, expected: str, wav: Path, refused: Shown
) -> None:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n" if status else ""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)

        def answer() -> None:
            connection = listener.accept()[0]
            connection.recv(4096)
            connection.sendall(f"{head}{body}\r\n".encode())
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        assert expected in refused("listen", f"http://127.0.0.1:{listener.getsockname()[1]}", wav)
        thread.join()
