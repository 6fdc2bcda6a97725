"""The page without a browser: audio that it keeps for a server that does not answer, and files."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from asrkit.serve.app import PAGE

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")


LOST = "Listening. 100.0 s of audio were lost: the server was away for too long."
SCENARIOS: dict[str, dict[str, Any]] = {
    # The connection is lost for a minute and more: nothing else is.
    "lost": {"first": 4.5, "blocks": [*range(5, 711)], "status": "Listening."},
    # Audio that is not kept is named, and times stay right.
    "long": {"sockets": 2, "blocks": [0] * 1000 + [*range(1011, 4011)], "status": LOST},
    "twice": {"sockets": 3, "blocks": [0] * 1000 + [*range(1011, 4011)], "status": LOST},
    "slow": {"sockets": 1, "blocks": [*range(1, 62)]},
    "stuck": {"sockets": 2, "blocks": [*range(11, 261)]},
    "end": {"blocks": [*range(1, 31)], "texts": [{"type": "end"}, {"early": 1}]},
    "final": {
        "texts": [{"type": "resume", "id": "i", "token": "t", "finals": 1, "ack": 48_000}],
    },
    "file": {"lines": ["yes please", "no"], "status": "a.wav: 4.0 s."},
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario(scenario: str) -> None:
    """What the last connection carried: numbers of blocks of 100 ms, and the last texts."""
    places = [Path(__file__).with_name("page.mjs"), PAGE / "page.js"]
    command = [str(NODE), *map(str, places), scenario]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found, expected = json.loads(done.stdout), SCENARIOS[scenario]
    assert not found["uneven"]
    found["texts"] = found["texts"][-len(expected.get("texts", [])) :]
    assert {name: found[name] for name in expected} == expected
