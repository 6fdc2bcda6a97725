"""The page and its client, in Node: lost connections, servers that do not answer, files."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from asrkit.runtime import Recognizer
from asrkit.serve.app import PAGE
from asrkit.serve.server import Server
from tests.conftest import PROJECT
from tests.serve.running import Recordings, serving, spoken
from tests.serve.test_client import cutting

CLIENT = PAGE / "asrkit.js"
NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")
# Node has a WebSocket from 22 on, and from 20.10 on behind this option.
OPTION = "--experimental-websocket"
HAS_OPTION = (
    NODE is not None
    and not subprocess.run([NODE, OPTION, "-e", "0"], capture_output=True).returncode
)
needs_websocket = pytest.mark.skipif(not HAS_OPTION, reason="this Node has no WebSocket")
Printed = dict[str, Any]

SCENARIOS: dict[str, Printed] = {
    # The connection is lost for a minute and more: nothing else is.
    "lost": {"first": 4.5, "blocks": [*range(5, 711)], "status": "Listening."},
    "long": {"sockets": 1, "status": "the server has not acknowledged the last 300 s of audio"},
    "gone": {"sockets": 122, "status": "the server cannot be reached for a minute"},
    "full": {"sockets": 3, "status": "Listening."},
    "rejected": {"sockets": 1, "blocks": [*range(1, 11)], "status": "the call is too long"},
    "slow": {"sockets": 1, "blocks": [*range(1, 62)]},
    "stuck": {"sockets": 2, "blocks": [*range(11, 261)]},
    "end": {"blocks": [*range(1, 31)], "texts": [{"type": "end"}, {"early": 1}]},
    "final": {
        "texts": [{"type": "resume", "id": "i", "token": "t", "finals": 1, "ack": 48_000}],
    },
    "file": {"lines": ["yes please", "no"], "status": "a.wav: 4.0 s."},
}


def node(script: Path, *arguments: object, **options: Any) -> str:
    """What a script prints."""
    command = map(str, [NODE, *[OPTION] * HAS_OPTION, script, *arguments])
    done = subprocess.run([*command], capture_output=True, timeout=60, **options)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def called(client: Path, url: str, token: str, samples: np.ndarray) -> Printed:
    """What client.mjs prints for these samples."""
    script = Path(__file__).with_name("client.mjs")
    printed: Printed = json.loads(node(script, client, url, token, input=samples.tobytes()))
    return printed


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario(scenario: str) -> None:
    """What the last connection carried: numbers of blocks of 100 ms, and the last texts."""
    script = Path(__file__).with_name("page.mjs")
    found, expected = json.loads(node(script, PAGE / "page.js", scenario)), SCENARIOS[scenario]
    assert not found["uneven"]
    found["texts"] = found["texts"][-len(expected.get("texts", [])) :]
    assert {name: found[name] for name in expected} == expected


def texts(printed: Printed) -> list[tuple[str, float, float]]:
    return [(each["text"], each["start"], each["end"]) for each in printed.get("segments", [])]


@needs_websocket
def test_cut_connections(
    address: str, served: Recognizer, recordings: Recordings, tmp_path: Path
) -> None:
    """The texts are those of the recording, unless the client forgets what it has kept."""
    path, samples = recordings[3]
    expected = spoken(served.transcribe(path).segments)
    with cutting(address, cuts=4, seed=1, most=12_000) as cutter:
        found = called(CLIENT, f"http://{cutter.address}/", "", samples)
        assert texts(found) == expected
        assert found["types"].count("disconnected") >= 2
        assert {"started", "partial", "final", "ended"} <= {*found["types"]}
    lost, control = "    drop(4000);\n", tmp_path / "control.mjs"
    assert CLIENT.read_text().count(lost) == 1
    control.write_text(CLIENT.read_text().replace(lost, f"{lost}    kept.length = 0;\n"))
    with cutting(address, cuts=4, seed=1, most=12_000) as cutter:
        assert texts(called(control, f"http://{cutter.address}/", "", samples)) != expected


@needs_websocket
def test_the_example_and_a_wrong_token(
    served: Recognizer, recordings: Recordings, tmp_path: Path
) -> None:
    shutil.copy(PROJECT / "docs" / "examples" / "listen.mjs", tmp_path)
    # Node 20 tells of no rejected handshake: the client then waits for this time.
    client, waits = tmp_path / CLIENT.name, "SILENT_MS = 20000"
    assert CLIENT.read_text().count(waits) == 1
    client.write_text(CLIENT.read_text().replace(waits, "SILENT_MS = 2000"))
    path, samples = recordings[0]
    soundfile.write(tmp_path / "a.wav", samples, 16000, subtype="PCM_16")
    (segment,) = served.transcribe(path).segments
    with serving(Server({"m": served}, token="s é/=")) as address:
        url, environment = f"http://{address}", {"ASRKIT_TOKEN": "s é/="}
        printed = node(tmp_path / "listen.mjs", url, "a.wav", cwd=tmp_path, env=environment)
        assert printed.rpartition("\r")[2] == f"{segment.spoken:g} s: {segment.text}\n"
        wrong = called(client, f"ws://{address}/v1/stream", "wrong", samples)
        assert (wrong["name"], wrong["reason"]) == ("CallError", "unreachable")
