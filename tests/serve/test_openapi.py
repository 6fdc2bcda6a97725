"""/openapi.json says what the server does: requests made from it find no other answers."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
from starlette.routing import Route

from asrkit.runtime import Recognizer
from asrkit.serve.app import app_of
from asrkit.serve.dialects.deepgram import FileOptions
from asrkit.serve.dialects.openai_files import KNOWN
from asrkit.serve.dialects.openapi import ERROR, REFUSALS, described
from asrkit.serve.server import Limits, Server
from tests.serve.running import serving

# Requests have a file that is audio: what is made up of a schema never is.
HOOKS = """
import io, wave, schemathesis

file = io.BytesIO()
with wave.open(file, "wb") as recording:
    recording.setparams((1, 2, 16000, 0, "NONE", None))
    recording.writeframes(b"ab" * 800)

@schemathesis.hook
def before_call(context, case, kwargs):
    if isinstance(case.body, dict) and "file" in case.body:
        case.body["file"] = file.getvalue()
"""
# What is made up for a field may be the same in a form as something else that fits, and a prompt
# may have words that the model cannot spell.
LEFT_OUT = "positive_data_acceptance,negative_data_rejection"


def run(address: str, tmp_path: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """schemathesis against a server."""
    if find_spec("schemathesis") is None:
        pytest.skip("schemathesis is not installed")
    (tmp_path / "hooks_for_asrkit.py").write_text(HOOKS)
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [
            sys.executable, "-m", "schemathesis.cli", "run", f"http://{address}/openapi.json",
            "--exclude-checks", LEFT_OUT, "--seed", "1", *more,
        ],
        env={**os.environ, "PYTHONPATH": paths, "SCHEMATHESIS_HOOKS": "hooks_for_asrkit"},
        cwd=tmp_path, capture_output=True, text=True, timeout=500,
    )  # fmt: skip


@pytest.mark.slow
def test_answers_are_as_described(address: str, tmp_path: Path) -> None:
    done = run(address, tmp_path, "--max-examples", "200")
    assert done.returncode == 0, done.stdout[-3000:]
    assert httpx.get(f"http://{address}/healthz").text == "ok\n"


@pytest.mark.slow
def test_control_another_answer_is_noticed(
    served: Recognizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(REFUSALS, 400)
    with serving(Server({"m": served}, Limits(upload_mb=2))) as address:
        done = run(address, tmp_path, "--max-examples", "20")
    assert done.returncode == 1
    assert "[400] Bad Request" in done.stdout


def test_every_address_is_described(server: Server) -> None:
    every = [each for each in app_of(server).routes if isinstance(each, Route)]
    routes = {each.path for each in every if each.include_in_schema}  # the page's files are not
    assert described(server)["paths"].keys() == routes


def test_every_field_is_described(address: str) -> None:
    paths = httpx.get(f"http://{address}/openapi.json").json()["paths"]
    body = paths["/v1/audio/transcriptions"]["post"]["requestBody"]
    assert set(body["content"]["multipart/form-data"]["schema"]["properties"]) == set(KNOWN)
    names = [each["name"] for each in paths["/v1/listen"]["post"]["parameters"]]
    assert set(names) == set(FileOptions.model_fields)


def test_a_token_is_asked_for(served: Recognizer) -> None:
    server = Server({"m": served}, token="t")
    with serving(server) as address:
        url = f"http://{address}/openapi.json"
        answer = httpx.get(url)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        found = httpx.get(url, headers={"Authorization": "Bearer t"}).json()
        assert found["security"]


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed"),
    [
        ("HEAD", "/v1/models", 200, None),
        ("POST", "/v1/models", 405, "GET, HEAD"),
        ("OPTIONS", "/v1/audio/transcriptions", 405, "POST"),
        ("GET", "/v1/audio/transcriptions", 405, "POST"),
        ("DELETE", "/healthz", 405, "GET, HEAD"),
        ("GET", "/v1/nothing", 404, None),
        ("GET", "/healthz/", 404, None),
        ("HEAD", "/", 200, None),
        ("GET", "/page.js", 200, None),
        ("POST", "/", 405, "GET, HEAD"),
    ],
)
def test_methods(address: str, method: str, path: str, status: int, allowed: str | None) -> None:
    answer = httpx.request(method, f"http://{address}{path}")
    assert answer.status_code == status
    if allowed is not None:
        assert set(answer.headers["allow"].split(", ")) == set(allowed.split(", "))
    if status >= 400:
        assert set(ERROR["properties"]["error"]["required"]) <= answer.json()["error"].keys()


def test_fields_that_cannot_be(address: str) -> None:
    for name, value, told in (
        ("stream", ["perhaps"], "stream must be one of true"),
        ("stream", ["true", "false"], "more than once"),
        ("timestamp_granularities[]", ["letter"], "segment, word"),
    ):
        answer = httpx.post(
            f"http://{address}/v1/audio/transcriptions", data={name: value}, files={"file": b"a"}
        )
        assert answer.status_code == 400
        assert told in answer.json()["error"]["message"]
