"""asrkit serve, as it is typed."""

import gc
import io
import json
import logging
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
import soundfile

from asrkit.commands.serve import arguments_of, main, name_of, origin, recognizers
from asrkit.pretrained import ready_models
from asrkit.serve import logs
from tests.conftest import PROJECT, speech


def test_it_says_where_it_is_and_ends_when_it_is_told_to() -> None:
    """With a log for programs; a token and a file's name are not in it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "asrkit", "serve", "--port", "0", "--streams", "3",
         "--wyoming", "0", "--log", "json"],
        cwd=PROJECT, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    ready = json.loads(process.stderr.readline())
    assert (ready["event"], ready["calls"]) == ("serving", 3)
    assert ready["models"] == "small-en-alnum, 320+160 ms, full"
    address = ready["address"]
    host, _, port = ready["wyoming"].removeprefix("tcp://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(b'{"type": "describe"}\n')
        assert client.recv(100).startswith(b'{"type": "info"')
    assert httpx.get(f"{address}readyz").text == "ok\n"
    assert "<title>asrkit</title>" in httpx.get(address).text
    assert httpx.get(f"{address}../pyproject.toml").status_code == 404
    with io.BytesIO() as file:
        soundfile.write(file, speech(1.0), 16000, format="WAV")
        sent = {"file": ("secret-name.wav", file.getvalue())}
    answer = httpx.post(f"{address}v1/audio/transcriptions?token=secret", files=sent)
    assert answer.status_code == 200
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) in (0, -signal.SIGTERM)
    lines = process.stderr.read()
    assert '"audio_s": 1.0' in lines
    assert "secret" not in lines


@pytest.fixture(autouse=True)
def _log() -> Iterator[None]:
    """End the log of a server in this process."""
    yield
    root = logging.getLogger()
    root.handlers = [each for each in root.handlers if each.name != logs.NAME]
    logging.captureWarnings(False)


def test_collections_do_not_search_what_was_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection of all objects took 0.13 s, was charged to one call, and stalled it for 19 s."""
    frozen = []
    monkeypatch.setattr(sys, "setswitchinterval", lambda seconds: None)

    def run(self: object, sockets: list[socket.socket]) -> None:
        frozen.append(gc.get_freeze_count())
        sockets[0].close()

    monkeypatch.setattr("uvicorn.Server.run", run)
    gc.unfreeze()  # what other tests have frozen
    assert gc.get_freeze_count() == 0  # control
    assert main(["--port", "0", "--streams", "3"]) == 0
    gc.unfreeze()
    assert frozen[0] > 100_000


def test_names_of_one_model_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "setswitchinterval", lambda seconds: None)
    models = ["--model", "a=small-en-alnum", "--model", "b=small-en-alnum"]
    other = ["--model", f"c={ready_models()['small-en-alnum']}"]  # control: by another path
    found = recognizers(arguments_of().parse_intermixed_args([*models, *other]))
    assert found["a"] is found["b"] is not found["c"]


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The sockets of servers, which are not run."""
    served: list[object] = []
    socket = SimpleNamespace(getsockname=lambda: ("0.0.0.0", 8000))
    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: served.extend(sockets))
    monkeypatch.setattr("asrkit.commands.serve.bound", lambda *given: socket)
    return served


REFUSED = [
    (["--host", "0.0.0.0"], "--insecure"),
    (["--host", "example.org"], "--token-file"),
    (["--token-file", "/nowhere"], "/nowhere"),
    (["--chunk-ms", "full", "--second-pass", "off"], "full context"),
    (["--port", "70000"], "--port"),
    (["--token-file", __file__], "the token must be one or more visible ASCII"),
    (["--wyoming", "0", "--token-file", "TOKEN"], "--wyoming lets in clients without a token"),
    (["--origin", "*"], "--origin '*' lets in all pages without a token"),
    (["--origin", "null"], "--origin 'null' lets in all pages without a token"),
    (["--origin", "https://their.site/"], "got 'https://their.site/'"),
    (["--origin", "their.site"], "--origin: must be a scheme and a host in lower case"),
    (["--wyoming", "70000"], "--wyoming"),
    (["--trust-proxy", "10.0.0.1/33"], "must be an address or a network, such as 127.0.0.1"),
    (["--wyoming", "1", "--host", "198.51.100.1", "--insecure"], "--wyoming 1: "),
    (["--model", "small-en-alnum", "--model", "small-en-alnum"], "--model OTHER=small-en-alnum"),
    (["--model", "a=nowhere.safetensors"], "nowhere.safetensors"),
    (["--state-dir", "a", "--redis", "redis://x"], "not allowed with argument --state-dir"),
    (["--redis", "redis://127.0.0.1:1/0"], "--state-key-file"),
    (["--redis", "redis://127.0.0.1:1/0", "--state-key-file", "/dev/null"], "does not answer"),
    (["--state-dir", "/nowhere", "--state-key-file", "/dev/null"], "belong together"),
    (["--state-dir", "/dev/null/a"], "/dev/null"),
    (["--save-seconds", "3"], "has no effect without --state-dir or --redis"),
]


@pytest.mark.parametrize(("options", "told"), REFUSED)
def test_refusals(
    options: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (token := tmp_path / "token").write_text("a\n")
    assert main([each.replace("TOKEN", str(token)) for each in options]) == 2
    assert told in capsys.readouterr().err


def test_an_origin_that_no_browser_sends_is_refused() -> None:
    for rest in ("their.site", "their.site:8443", "[::1]:3000"):
        assert origin(f"https://{rest}") == f"https://{rest}"
    for rest in ("Their.site", "their.site:443", "me@their.site", "*.site", "söder.site", "a?x"):
        with pytest.raises(ValueError, match=r"^$"):
            origin(f"https://{rest}")


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_a_token_in_a_file(
    host: str, tmp_path: Path, sockets: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "token"
    path.write_text("secret\n")
    assert main(["--host", host, "--token-file", str(path)]) == 0
    assert len(sockets) == 1
    assert ("put a proxy in front" in caplog.text) == (host == "0.0.0.0")


@pytest.mark.usefixtures("sockets")
def test_models_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The name that is given, or that of the file, whose path may have "=" in it."""
    odd = tmp_path / "a=b" / "c=d.safetensors"
    odd.parent.mkdir()
    odd.write_bytes(ready_models()["small-en-alnum"].read_bytes())
    assert name_of("hf://me/small-2.5@v1.0/model.safetensors") == "small-2.5"
    assert main(["--model", "en=small-en-alnum", "--model", str(odd), "--insecure"]) == 0
    told = capsys.readouterr().err
    assert told.startswith("en, 320+160 ms, full; c=d, 320+160 ms, full, 100 calls")
