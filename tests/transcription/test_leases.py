"""Leases: one owner for each attempt, takeover, a bound on attempts, processes that are killed."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from asrkit.transcription.leases import ATTEMPTS, Lease, Leases
from tests.conftest import PROJECT

NAMES = [f"task{number}" for number in range(12)]
WORKER = """
import sys, time
from pathlib import Path
from asrkit.atomic_write import replacing
from asrkit.transcription.leases import Leases
folder = Path(sys.argv[1])
def do(name):
    with replacing(folder / name) as temporary:
        for part in range(4):
            with temporary.open("a") as file:
                file.write(name + "\\n")
            time.sleep(0.01)
leases = Leases(folder, 0.3)
list(leases.work(sys.argv[2:], lambda name: (folder / name).exists(), do))
"""


class Between(Leases):
    """Does something between judging a lease and acting on it."""

    between: Callable[[], object]

    def expired(self, attempts: list[float]) -> bool:
        found = super().expired(attempts)
        self.between()
        return found


class Replacing(Between):
    """The control: removes the expired lease and makes it anew, under the same name."""

    def claim(self, name: str) -> Lease | None:
        if not self.expired(self.attempts(name)):
            return None
        self.path(name, 0).unlink(missing_ok=True)
        self.path(name, 0).touch(exist_ok=False)
        return Lease(self.path(name, 0), self.seconds)


@pytest.mark.parametrize(("kind", "owners"), [(Between, 1), (Replacing, 2)])
@pytest.mark.parametrize("fresh", [True, False])
def test_one_of_two_gets_an_attempt(
    kind: type[Between], owners: int, fresh: bool, tmp_path: Path
) -> None:
    """Even if the other acts after this one has judged the lease, and before this one acts."""
    first, second = kind(tmp_path, 60.0), kind(tmp_path, 60.0)
    if not fresh:
        first.between = lambda: None
        lease = first.claim("a")
        assert lease
        os.utime(lease.path, (1000, 1000))
    got: list[Lease | None] = []
    first.between = lambda: None
    second.between = lambda: got.append(first.claim("a"))
    got.append(second.claim("a"))
    assert sum(lease is not None for lease in got) == owners


def test_a_lease_is_refreshed_and_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leases = Leases(tmp_path, 0.4)
    lease = leases.claim("a")
    assert lease
    with lease:
        time.sleep(0.8)
        assert leases.claim("a") is None
        monkeypatch.setattr(time, "time", lambda: 4e9)  # a machine with another clock
        assert leases.claim("a") is None
        os.utime(lease.path, (4e9, 4e9))
        assert Leases(tmp_path, 60.0).expired(leases.attempts("a"))
    time.sleep(0.5)
    assert leases.claim("a")


def test_attempts_are_bounded_but_stopping_is_none(tmp_path: Path) -> None:
    leases, done = Leases(tmp_path, 0.2), set()
    raised: type[BaseException] = KeyboardInterrupt

    def do(name: str) -> None:
        if name == "a":
            raise raised
        done.add(name)

    for _ in range(2 * ATTEMPTS):
        with pytest.raises(KeyboardInterrupt):
            list(leases.work(["a"], done.__contains__, do))
    raised = ZeroDivisionError
    for _ in range(ATTEMPTS):
        assert not leases.given_up("a")
        with pytest.raises(ZeroDivisionError):
            list(leases.work(["a"], done.__contains__, do))
    assert leases.given_up("a")
    assert {*leases.work(["a", "b"], done.__contains__, do)} == {"b", ""}
    assert done == {"b"}
    assert not leases.attempts("b")  # removed


def test_processes_are_killed_again_and_again(tmp_path: Path) -> None:
    """Three share the tasks; one after another is killed: no task is lost, and no half result."""
    draw, command = random.Random(0), [sys.executable, "-c", WORKER, str(tmp_path), *NAMES]
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    workers = [subprocess.Popen(command, env=environment) for _ in range(3)]
    for _ in range(6):
        time.sleep(draw.uniform(0.1, 0.3))
        worker = workers.pop(0)
        worker.kill()
        worker.wait()
        workers.append(subprocess.Popen(command, env=environment))
    assert [worker.wait(20) for worker in workers] == [0, 0, 0]
    assert {name: (tmp_path / name).read_text() for name in NAMES} == {
        n: f"{n}\n" * 4 for n in NAMES
    }
    assert not list(tmp_path.glob("*.lease.*"))
