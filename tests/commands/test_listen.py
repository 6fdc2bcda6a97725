"""asrkit listen without a server: what is wrong is told in a line. With one: tests/serve."""

import socket
import threading
from pathlib import Path

import pytest

from tests.conftest import speech, write_wav
from tests.running import run

Output = pytest.CaptureFixture[str]


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    return write_wav(tmp_path / "x.wav", speech(0.2))


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "http://", "http://x:y", "http://[x"])
def test_what_is_no_url(url: str, wav: Path, capsys: Output) -> None:
    assert told(capsys, url, wav) == (
        f"asrkit listen: the server must be a URL like http://127.0.0.1:8000, got {url!r}\n"
    )


def told(capsys: Output, *arguments: object) -> str:
    """The line of an error."""
    assert run("listen", *arguments) == 2
    shown = capsys.readouterr()
    assert not shown.out
    assert shown.err.count("\n") == 1
    return shown.err


def test_no_server_no_file_no_token(wav: Path, tmp_path: Path, capsys: Output) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://user:word@127.0.0.1:{listener.getsockname()[1]}/?token=secret"
    refused = told(capsys, url, wav)
    assert "no connection to ws://127.0.0.1:" in refused
    assert "Connection refused" in refused
    assert "word" not in refused
    assert "secret" not in refused
    assert "none.wav does not exist" in told(capsys, url, tmp_path / "none.wav")
    assert "needs one source: FILE, --mic, or -" in told(capsys, url)
    assert "--token-file" in told(capsys, url, wav, "--token-file", tmp_path / "none")
    assert "exclude each other" in told(capsys, url, wav, "--token-file", wav, "--token", "x")
    (tmp_path / "marked").write_bytes(b"\xef\xbb\xbfkey123\r\n")  # by Windows PowerShell 5
    refused = told(capsys, url, wav, "--token-file", tmp_path / "marked")
    assert "a byte order mark: save the file without it" in refused
    assert "key123" not in refused
    for start in ("http://user:word@", "http://user:wo/rd@", "user:w@rd@"):
        refused = told(capsys, f"{start}127.0.0.1:99999/?token=secret", wav)
        scheme = start.partition("user")[0]
        assert f"got '{scheme}127.0.0.1:99999/'" in refused
    (tmp_path / "words").write_text("x" * 201)
    assert "hotwords" in told(capsys, url, wav, "--hotwords", tmp_path / "words")


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        ("", "220 mail ready", "no connection to ws://127.0.0.1:"),
        ("503 Busy", '{"error": {"message": "starts"}}', "HTTP 503: starts"),
        ("502 Bad", "<html>", "no connection to ws://127.0.0.1:"),
        ("404 None", '{"error": {"message": "not here"}}', "rejects the call (HTTP 404): not here"),
        ("404 None", '{"error": "not here"}', "is not an asrkit server (HTTP 404)"),
        ("404 None", "[" * 100_000, "is not an asrkit server (HTTP 404)"),
    ],
)
def test_another_program_at_the_port(
    status: str, body: str, expected: str, wav: Path, capsys: Output
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
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert expected in told(capsys, url, wav)
        thread.join()
