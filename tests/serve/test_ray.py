"""The server in a local cluster of Ray: a replica is killed in the middle of calls."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import asrkit
from asrkit.commands.serve import application_of, arguments_of
from tests.conftest import skip
from tests.running import free_ports, wait_until
from tests.serve.test_restart import Caller, Recordings, whole
from tests.serve.test_stream import assert_is


@pytest.fixture
def cluster() -> Iterator[Callable[[Any], str]]:
    """Runs an application on this machine, and returns its address."""
    try:
        import ray
        from ray import serve
    except ImportError:
        skip("ray is not installed")
    (port,) = free_ports(1)
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": port})

    def run(app: Any) -> str:
        serve.run(app, route_prefix="/")
        return f"127.0.0.1:{port}"

    yield run
    serve.shutdown()
    ray.shutdown()


def application(*arguments: str) -> Any:
    """The application of docs/serve.md."""
    from ray import serve

    options = arguments_of().parse_intermixed_args([*arguments])
    ingress = serve.ingress(lambda: application_of(options))
    resources = {"max_ongoing_requests": 150, "ray_actor_options": {"num_cpus": 0.5}}
    return serve.deployment(num_replicas=2, **resources)(ingress()).bind()


def replicas() -> set[int]:
    """Processes of Ray's replicas on this machine."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if name.startswith(b"ray::ServeReplica"):
            found.add(int(folder.name))
    return found


@pytest.mark.slow
def test_calls_go_on_without_a_replica(
    cluster: Callable[[Any], str], recordings: Recordings, tmp_path: Path
) -> None:
    """Every text is that of one process, and Ray starts another replica."""
    options = ("--state-dir", str(tmp_path / "calls"), "--save-seconds", "1", "--streams", "20")
    app = application(*options, "--endpoint-ms", "400")
    address = cluster(app)
    recognizer = asrkit.load(
        "small-en-alnum", endpointer=asrkit.Endpointer(400), second_pass="full"
    )
    samples = [whole(recordings, number)[0] for number in range(6)]
    callers = [Caller([address], each, pause=0.2) for each in samples]
    with ThreadPoolExecutor(len(callers)) as pool:
        talking = [pool.submit(caller.talk) for caller in callers]
        time.sleep(4.0)
        first = replicas()
        os.kill(min(first), signal.SIGKILL)
        heard = [each.result(timeout=200) for each in talking]
    for messages, each in zip(heard, samples, strict=True):
        assert_is(messages, recognizer.transcribe(each), len(each))
    assert sum(caller.resumes > 1 for caller in callers) >= 1  # else nothing was interrupted
    wait_until(lambda: len(replicas()) == 2, 60)
    assert len(first) == 2
