"""tools/torture finds planted faults of each kind, reduces them, and reports nothing else."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from random import Random

import pytest

from asrkit.errors import UserError
from tools.torture import __main__, cage, commands, kills
from tools.torture.__main__ import Case, reduced
from tools.torture.cage import Part, outcomes
from tools.torture.mutations import CONTAINERS, mutated

KEPT = Path(__file__).parents[1] / "kept"


def crash() -> str:
    os.abort()


def hang() -> str:
    while True:
        pass


def memory() -> str:
    return str(len(bytearray(1 << 30)))[:0]


def error() -> str:
    raise KeyError("x")


def outside() -> str:
    Path("../../escaped").write_text("x")
    return ""


def program() -> str:
    os.system("true")
    return ""


def loss() -> str:
    return "lost without a word: 1 s"


def refusal() -> str:
    raise UserError("a number must be 1, got 2: change it")


def nothing() -> str:
    return ""


@pytest.mark.parametrize(
    ("deed", "kind"),
    [
        (crash, "crash SIGABRT"), (hang, "hang"), (memory, "memory"), (error, "KeyError"),
        (outside, "outside"), (program, "outside"), (loss, "wrong"), (refusal, cage.REFUSED),
        (nothing, cage.READ),
    ],
)  # fmt: skip
def test_each_kind_of_fault_is_found(
    deed: Callable[[], str], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cage, "CPU_SECONDS", 0.2)
    part = Part("", lambda folder: None, lambda path, said: deed(), memory_mb=256)
    inputs = [(number, lambda folder: folder / "x") for number in (7, 8)]
    found = list(outcomes(part, inputs, tmp_path))
    assert [number for number, _ in found] == ([7] if kind[:4] in ("cras", "hang") else [7, 8])
    assert {outcome.kind for _, outcome in found} == {kind}
    assert not (tmp_path.parent / "escaped").exists()


def test_a_fault_is_reduced(tmp_path: Path) -> None:
    """Only the byte "7" matters; the last of three mutations may make it."""

    def run(path: Path, said: list[str]) -> str:
        return "seven: x" if b"7" in path.read_bytes() else ""

    source = tmp_path / "a.bin"
    source.write_bytes(b"0123456" * 40 + b"7" + b"0123456" * 40)
    part = Part("", lambda folder: None, run)
    case = Case(source, source, ())
    ((_, found),) = outcomes(part, [(0, case.write)], tmp_path)
    path = reduced(part, case, found, tmp_path)
    assert b"7" in path.read_bytes()
    assert path.stat().st_size < 100


@pytest.mark.parametrize(
    "name",
    ["models/exported.safetensors", "out/checkpoints/step-00000002.pt", "stream.bin",
     "train.jsonl", "config.yaml", "shards/cuts.000000.jsonl.gz", "shards/recording.000000.tar"],
)  # fmt: skip
def test_a_seed_gives_the_same_mutation_of_every_container(name: str) -> None:
    data = (KEPT / name).read_bytes()
    (inside,) = [each for fits, each in CONTAINERS if fits(data)]
    made = [inside(data, data, Random(seed)) for seed in range(20)]
    assert made[3] == inside(data, data, Random(3)) != data
    assert len({*made, mutated(data, data, Random(20))}) > 12


@pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc of Linux")
def test_a_part_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["torture", "--parts", "models", "--inputs", "20", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", command)
    assert __main__.main() == 0
    assert capfd.readouterr().out.startswith("models: 20 inputs")


@pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc of Linux")
def test_a_fault_is_tried_again_with_limits_and_nothing_tried_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def run(path: Path, said: list[str]) -> str:
        return crash() if path.read_bytes() == b"bad" else ""  # without limits: this process ends

    def seeds(folder: Path) -> None:
        (folder / "seed").write_bytes(b"")

    monkeypatch.setitem(__main__.PARTS, "planted", Part("planted faults", seeds, run))
    (tmp_path / "bad").write_bytes(b"bad")
    command = ["torture", "--parts", "planted", "--seconds", "0.1", "--out", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", [*command, "--again", str(tmp_path / "bad")])
    assert __main__.main() == 1
    assert "crash SIGABRT" in capfd.readouterr().out
    monkeypatch.setattr(cage, "_confine", None)
    monkeypatch.setattr("sys.argv", command)
    assert __main__.main() == 1
    assert "planted: 0 inputs" in capfd.readouterr().out


@contextmanager
def careless(path: str, **options: object) -> Iterator[Path]:
    """A writer into the file itself, after the old one is removed."""
    os.remove(path)
    os.open(path, os.O_CREAT)  # half of it
    yield Path(path)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
@pytest.mark.parametrize("force", ["at a write", "limit"])
def test_commands_that_are_disturbed_lose_nothing(
    force: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that writes into its file itself loses the old one: the control."""
    whole = commands.prepared("pack", tmp_path / "pack")

    def problems() -> list[str]:
        found = []
        for number in range(3):
            folder = tmp_path / str(number)
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(tmp_path / "pack", folder)
            found.append(kills.disturbed("pack", force, Random(number), whole, folder)[1])
        return found

    assert problems() == [""] * 3
    monkeypatch.setattr("asrkit.model_file.replacing", careless)
    assert any("damaged" in each for each in problems())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
def test_two_ranks_that_are_killed_train_what_they_would_have(tmp_path: Path) -> None:
    """And a wrong weight in an undisturbed run is a difference: the control.

    In a new process: once autograd has threads in this one, ranks that are forked cannot train.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        pool.submit(kill_two_ranks, tmp_path).result()


def kill_two_ranks(tmp_path: Path) -> None:
    whole = commands.prepared("ranks", tmp_path / "ranks")
    whole = whole._replace(changes=whole.changes // 4)  # those of both ranks
    assert len(list((tmp_path / "ranks" / "whole" / "checkpoints").glob("*.pt"))) == 2
    draw = Random(0)
    for expected in (True, False):
        folder = tmp_path / str(expected)
        shutil.copytree(tmp_path / "ranks", folder)
        if not expected:
            model = folder / "whole" / "model.safetensors"
            *data, last = model.read_bytes()
            model.write_bytes(bytes([*data, last ^ 1]))
        status, problem = kills.disturbed("ranks", "at a write", draw, whole, folder)
        assert status == -9
        assert (problem == "") == expected


@pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc of Linux")
def test_no_more_inputs_than_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    seeds = lambda folder: (folder / "seed").write_bytes(b"a")  # noqa: E731
    part = Part("", seeds, lambda path, said: "")
    monkeypatch.setitem(__main__.PARTS, "planted", part)
    monkeypatch.setattr(__main__, "BATCH", 5)
    command = ["torture", "--parts", "planted", "--inputs", "7", "--out", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", command)
    assert __main__.main() == 0
    assert "planted: 7 inputs" in capfd.readouterr().out
