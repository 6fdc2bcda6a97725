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


def page(scenario: str) -> dict[str, Any]:
    """Return what the last connection of a scenario carried: numbers of blocks of 100 ms."""
    command = [
        str(NODE),
        str(Path(__file__).with_name("page.mjs")),
        str(PAGE / "page.js"),
        scenario,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert not found["uneven"]
    return found


def test_a_lost_connection_of_a_minute_and_more_loses_nothing() -> None:
    found = page("lost")
    assert found["first"] == 4.5
    assert found["blocks"] == [*range(5, 711)]
    assert found["status"] == "Listening."


@pytest.mark.parametrize(("scenario", "connections"), [("long", 2), ("twice", 3)])
def test_audio_that_is_not_kept_is_named_and_times_stay_right(
    scenario: str, connections: int
) -> None:
    found = page(scenario)
    assert found["sockets"] == connections
    assert found["blocks"] == [0] * 1000 + [*range(1011, 4011)]
    assert found["status"] == (
        "Listening. 100.0 s of audio were lost: the server was away for too long."
    )


def test_what_the_network_does_not_take_waits() -> None:
    found = page("slow")
    assert found["sockets"] == 1
    assert found["blocks"] == [*range(1, 62)]


def test_a_connection_that_takes_nothing_is_replaced() -> None:
    found = page("stuck")
    assert found["sockets"] == 2
    assert found["blocks"] == [*range(11, 261)]


def test_the_end_follows_the_audio() -> None:
    found = page("end")
    assert found["blocks"] == [*range(1, 31)]
    assert found["texts"][-2:] == [{"type": "end"}, {"early": 1}]


def test_segments_acknowledge_audio() -> None:
    assert page("final")["texts"][0] == {
        "type": "resume", "id": "i", "token": "t", "finals": 1, "ack": 48_000,
    }  # fmt: skip


def test_a_file_has_all_its_words() -> None:
    found = page("file")
    assert found["lines"] == ["yes please", "no"]
    assert found["status"].endswith(": 4.0 s.")
