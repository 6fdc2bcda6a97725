"""The files in deploy/: the image, the service behind the proxy, and Kubernetes."""

import configparser
import json
import os
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Any

import httpx
import pytest
import soundfile
import yaml

import asrkit
from asrkit.commands.serve import arguments_of
from asrkit.serve.app import app_of
from asrkit.serve.metrics import Figures
from asrkit.serve.server import Server
from tests.conftest import PROJECT, skip
from tests.running import free_ports
from tests.serve.running import connected, listening
from tests.serve.test_stream import converse, text_of

NAME = "asr.example.org"  # server_name in nginx.conf
TOKEN = "secret"
RECORDING = PROJECT / "tests/kept/speech/digits.flac"
DOCKERFILE = (PROJECT / "deploy/Dockerfile").read_text().replace("\\\n", "")


def replaced(text: str, new: Mapping[str, object]) -> str:
    """Return a file's text with other places, each of which it must have."""
    for old, value in new.items():
        assert old in text, (old, text)
        text = text.replace(old, str(value))
    return text


@pytest.mark.slow
def test_the_image_is_small_and_serves(tmp_path: Path) -> None:
    """Made by its own commands, it has at most 400 MB with the 125 MB of python:3.11-slim."""
    if shutil.which("strip") is None:
        skip("binutils is not installed")
    python, packages = tmp_path / "python", tmp_path / "packages"
    venv.create(python, with_pip=True)
    steps = re.findall(r"^RUN (?:--mount=\S+ )?(.* /packages.*)", DOCKERFILE, re.MULTILINE)
    commands = replaced("\n".join(steps), {"/src": PROJECT, "/packages": packages})
    environment = {**os.environ, "PATH": f"{python / 'bin'}:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    subprocess.run(["sh", "-ec", commands], env=environment, check=True)
    assert sum(each.stat().st_size for each in packages.rglob("*") if each.is_file()) < 275e6
    (site,) = packages.glob("lib/python3*/site-packages")
    (tmp_path / "token").write_text(TOKEN)
    (start,) = re.findall("^ENTRYPOINT (.*)", DOCKERFILE, re.MULTILINE)
    places = {
        '"asrkit"': f'"{packages / "bin/asrkit"}"', "0.0.0.0": "127.0.0.1",
        "/run/secrets/asrkit_token": tmp_path / "token",
    }  # fmt: skip
    compose = yaml.safe_load((PROJECT / "deploy/compose.yaml").read_text())
    options = [
        each.replace("/var/lib/asrkit", str(tmp_path / "calls"))
        for each in compose["services"]["asrkit"]["command"]
    ]
    (port,) = free_ports(1)
    command = ["env", f"PYTHONPATH={site}", *json.loads(replaced(start, places)), *options]
    with listening([*command, "--port", str(port)], port):
        found = httpx.post(
            f"http://127.0.0.1:{port}/v1/audio/transcriptions", timeout=60,
            files={"file": RECORDING.read_bytes()}, headers={"Authorization": f"Bearer {TOKEN}"},
        )  # fmt: skip
    expected = asrkit.load("small-en-alnum", second_pass="full").transcribe(RECORDING).text
    assert found.json()["text"] == expected


def service(folder: Path, port: int) -> list[str]:
    """Return the command of asrkit.service on this port, with what systemd would give it."""
    unit = configparser.RawConfigParser()
    unit.read(PROJECT / "deploy/asrkit.service")
    own = unit["Service"]
    (folder / own["LoadCredential"].partition(":")[0]).write_text(f"{TOKEN}\n")
    places = {
        "/opt/asrkit/bin/asrkit": f"{sys.executable} -m asrkit", " 8000": f" {port}",
        "/var/lib/asrkit": "$CREDENTIALS_DIRECTORY/calls",
    }  # fmt: skip
    words = map(Template, shlex.split(replaced(own["ExecStart"], places)))
    substituted = [each.substitute(CREDENTIALS_DIRECTORY=folder) for each in words]
    return ["env", own["Environment"], *substituted]


def nginx(program: str, folder: Path, port: int, behind: int) -> list[str]:
    """Return the command of nginx with nginx.conf on this port, in front of another one."""
    places = {
        "listen 443": f"listen 127.0.0.1:{port}", "127.0.0.1:8000": f"127.0.0.1:{behind}",
        f"/etc/ssl/{NAME}": NAME,
    }  # fmt: skip
    server = replaced((PROJECT / "deploy/nginx.conf").read_text(), places)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    own = "".join(f"{kind}_temp_path {kind}; " for kind in kinds)  # not the system's folders
    (folder / "nginx.conf").write_text(
        "daemon off; master_process off; pid nginx.pid; events {}\n"
        f"http {{ access_log access.log; {own}\n{server} }}"
    )
    return [program, "-p", str(folder), "-c", "nginx.conf", "-e", "stderr"]


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[tuple[int, ssl.SSLContext]]:
    """The port of nginx in front of the service, and a context that trusts its certificate."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    program, openssl = (shutil.which(name, path=path) for name in ("nginx", "openssl"))
    if program is None or openssl is None:
        skip("nginx or openssl is not installed")
    certificate, key = tmp_path / f"{NAME}.pem", tmp_path / f"{NAME}.key"
    names = f"subjectAltName=DNS:{NAME},IP:127.0.0.1"
    subprocess.run(
        [
            openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={NAME}",
            "-addext", names, "-out", certificate, "-keyout", key,
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    behind, port = free_ports(2)
    with (
        listening(service(tmp_path, behind), behind),
        listening(nginx(program, tmp_path, port, behind), port),
    ):
        yield port, ssl.create_default_context(cafile=certificate)


def test_the_service_behind_the_proxy(proxy: tuple[int, ssl.SSLContext], tmp_path: Path) -> None:
    """Its page is public, and what has the token gets a file's text and a call's."""
    port, trusting = proxy
    expected = asrkit.load("small-en-alnum", second_pass="full").transcribe(RECORDING).text
    assert expected
    with httpx.Client(
        base_url=f"https://127.0.0.1:{port}", headers={"Host": NAME}, verify=trusting, timeout=60
    ) as client:
        assert "<title>asrkit</title>" in client.get("/").text
        url, files = "/v1/audio/transcriptions", {"file": RECORDING.read_bytes()}
        assert client.post(url, files=files).status_code == 401
        found = client.post(url, files=files, headers={"Authorization": f"Bearer {TOKEN}"})
        assert found.json()["text"] == expected
    samples, rate = soundfile.read(RECORDING, dtype="int16")
    call = connected(  # as a browser connects
        f"wss://{NAME}/v1/stream?token={TOKEN}", origin=f"https://{NAME}", ssl=trusting,
        sock=socket.create_connection(("127.0.0.1", port)),
    )  # fmt: skip
    call.send(json.dumps({"type": "start", "sample_rate": rate}))
    assert text_of(converse(call, [samples.tobytes()])) == expected
    assert TOKEN not in (tmp_path / "access.log").read_text()


def call(port: int, trusting: ssl.SSLContext) -> tuple[str, float]:
    """Return the text of a neighbour's call, and the seconds that it took."""
    samples, rate = soundfile.read(RECORDING, dtype="int16")
    started = time.monotonic()
    client = connected(
        f"wss://{NAME}/v1/stream?token={TOKEN}", ssl=trusting,
        sock=socket.create_connection(("127.0.0.1", port)),
    )  # fmt: skip
    client.send(json.dumps({"type": "start", "sample_rate": rate}))
    return text_of(converse(client, [samples.tobytes()])), time.monotonic() - started


@pytest.mark.slow
def test_attacks_from_another_address_harm_no_neighbour(
    proxy: tuple[int, ssl.SSLContext],
) -> None:
    """Idle and slow connections, requests in a flood, and calls of tiny messages and pings."""
    port, trusting = proxy
    expected = asrkit.load("small-en-alnum", second_pass="full").transcribe(RECORDING).text
    call(port, trusting)  # warms up
    alone = [call(port, trusting) for _ in range(20)]
    script = str(PROJECT / "tests/serve/attackers.py")
    attackers = [
        subprocess.Popen(
            [sys.executable, script, str(number), str(port), TOKEN], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for number in range(4)
    ]  # fmt: skip
    for each in attackers:
        assert each.stdout is not None
        each.stdout.readline()
    time.sleep(3.0)
    beside = [call(port, trusting) for _ in range(20)]
    rejected = sum(int(each.communicate()[0]) for each in attackers)
    assert {text for text, _ in [*alone, *beside]} == {expected}
    assert rejected > 0  # control: the proxy has seen the attack
    p95, p95_beside = (sorted(seconds for _, seconds in calls)[-2] for calls in (alone, beside))
    assert p95_beside < 1.5 * p95 + 0.2


SAVE_S = 20  # seconds to close connections and save calls, at most


def test_the_manifest_fits_the_server() -> None:
    text = (PROJECT / "deploy/kubernetes.yaml").read_text()
    objects: dict[Any, Any] = {
        (each["kind"], each["metadata"]["name"]): each["spec"] for each in yaml.safe_load_all(text)
    }
    template = objects["Deployment", "asrkit"]["template"]
    (container,) = template["spec"]["containers"]
    options = arguments_of().parse_args(container["args"])
    folder = container["volumeMounts"][0]["mountPath"]
    assert str(options.state_key_file) == f"{folder}/state_key"
    assert f'"{folder}/asrkit_token"' in (PROJECT / "deploy/Dockerfile").read_text()
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness")}
    paths = {getattr(route, "path", "") for route in app_of(Server({})).routes}
    assert {each["path"] for each in probes.values()} <= paths
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz" in paths
    drain = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert template["spec"]["terminationGracePeriodSeconds"] >= drain + SAVE_S
    (metric,) = objects["HorizontalPodAutoscaler", "asrkit"]["metrics"]
    exported = re.findall(r"^# TYPE (\S+)", Figures().exposition().decode(), re.M)
    assert metric["pods"]["metric"]["name"] in exported
    assert objects["Service", "asrkit"]["selector"] == template["metadata"]["labels"]
