"""Mutated inputs of every kind, each in a process with limits (docs/evidence/guarantees.md).

A fault is a crash, more than 10 s of CPU time, memory over the part's bound, or an exception that
is not asrkit's own. Files written outside their folder, started programs and audio lost without a
word are faults too. hypothesis reduces a fault, and tries it first the next time; build/torture has
its input.
"""

import logging
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.database import DirectoryBasedExampleDatabase

from asrkit.errors import UserError
from tests.conftest import PROJECT
from tests.torture import cage
from tests.torture.cage import Part, tried
from tests.torture.kinds import PARTS
from tests.torture.mutations import mutated

FREE = settings(deadline=None, suppress_health_check=[*HealthCheck])
EXAMPLES = int(os.environ.get("EXAMPLES", "100"))
SHARED = Path("/dev/shm")  # on a disk, writing an input takes longer than reading it
FOLDER = SHARED if os.access(SHARED, os.W_OK) else None
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc of Linux")


def files_in(path: Path) -> list[Path]:
    return sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]


def seeds_of(part: Part, folder: Path) -> list[Path]:
    """Write the valid inputs of a part, and read each once."""
    folder.mkdir()
    part.seeds(folder)
    logging.getLogger("asrkit").addHandler(logging.NullHandler())
    for seed in sorted(folder.iterdir()):  # imports, which a process with limits could not do
        with suppress(Exception), tempfile.TemporaryDirectory() as once:
            copied = Path(once) / seed.name
            (shutil.copytree if seed.is_dir() else shutil.copyfile)(seed, copied)
            part.run(copied, [])
    return sorted(folder.iterdir())


def torture(part: Part, examples: int, folder: Path, kept: Path) -> None:
    """Try mutated inputs of a part; write a fault's input to the folder `kept`."""
    seeds = seeds_of(part, folder / "seeds")
    faults = DirectoryBasedExampleDatabase(kept.with_suffix(".faults"))

    @settings(parent=FREE, max_examples=examples, database=faults)
    @given(st.data())
    def search(data: st.DataObject) -> None:
        seed, other = (data.draw(st.sampled_from(seeds)) for _ in range(2))
        with tempfile.TemporaryDirectory(prefix="torture-", dir=FOLDER) as folder:
            source = Path(folder) / seed.name
            (shutil.copytree if seed.is_dir() else shutil.copyfile)(seed, source)
            for _ in range(data.draw(st.sampled_from([0, 1, 1, 1, 1, 2, 3, 5]))):
                path = data.draw(st.sampled_from(files_in(source)))
                splice = data.draw(st.sampled_from(files_in(other))).read_bytes()[: 1 << 20]
                path.write_bytes(data.draw(mutated(path.read_bytes(), splice)))
            found = tried(part, source, Path(folder) / "tried")
            if found.is_fault:
                shutil.rmtree(kept, ignore_errors=True)
                kept.mkdir(parents=True)
                pytest.fail(
                    f"{found.kind}: {shutil.move(source, kept)}\n{found.detail}", pytrace=False
                )

    search()


@pytest.mark.torture
@pytest.mark.parametrize("name", PARTS)
def test_inputs_are_read_or_rejected(name: str, tmp_path: Path) -> None:
    if name == "audio" and not shutil.which("ffmpeg"):
        pytest.skip("ffmpeg is missing, which writes recordings of every format")
    torture(PARTS[name], EXAMPLES, tmp_path, PROJECT / "build" / "torture" / name)


@pytest.mark.parametrize("name", ["hotwords"])
def test_inputs_of_a_kind_are_read_or_rejected(name: str, tmp_path: Path) -> None:
    """The quickest kinds of input, for a moment."""
    torture(PARTS[name], 20, tmp_path, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_control_a_fault_is_found_and_reduced(tmp_path: Path) -> None:
    """Only the byte "7" matters."""

    def run(path: Path, said: list[str]) -> str:
        return "" if b"7" in path.read_bytes() else "seven: it is lost"

    def seeds(folder: Path) -> None:
        (folder / "a").write_bytes(b"0123456789" * 40)

    with pytest.raises(pytest.fail.Exception, match=r"wrong: .*\nseven: it is lost"):
        torture(Part(seeds, run), 1000, tmp_path, tmp_path / "kept")
    assert len((tmp_path / "kept" / "a").read_bytes()) < 8


def act(name: str) -> str:
    """Do what no reader of an input may do."""
    if name == "crash SIGABRT":
        os.abort()
    while name == "hang":
        pass
    if name == "memory":
        bytearray(1 << 30)
    if name == "KeyError":
        raise KeyError("x")
    if name == "outside":
        Path("../../escaped").write_text("x")
    if name == "program":
        os.system("true")
    if name == cage.REFUSED:
        raise UserError("a number must be 1, got 2: change it")
    return "lost without a word: 1 s" if name == "wrong" else ""


@pytest.mark.parametrize("name", [
    "crash SIGABRT", "hang", "memory", "KeyError", "outside", "program", "wrong", cage.REFUSED,
    cage.READ,
])  # fmt: skip
def test_control_each_kind_of_fault_is_found(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cage, "CPU_SECONDS", 1)
    (tmp_path / "x").write_bytes(b"")
    part = Part(lambda folder: None, lambda path, said: act(name), memory_mb=256)
    kind = "outside" if name == "program" else name
    assert tried(part, tmp_path / "x", tmp_path / "a" / "b").kind == kind
    assert not (tmp_path / "escaped").exists()
