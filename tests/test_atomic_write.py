"""Atomic writes: the old file or the new one, and nothing left of a process that was killed."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from asrkit import atomic_write as files
from asrkit.atomic_write import new_folder, remove_leftovers, replacing
from asrkit.errors import UserError
from tests.conftest import PROJECT

HALF_WRITTEN = """
import sys
from asrkit.atomic_write import replacing
with replacing(sys.argv[1]) as temporary:
    temporary.write_text("half")
    print("written", flush=True)
    sys.stdin.read()
"""


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_a_killed_process_left_goes_and_a_living_ones_stays(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """Any next write into the folder removes it, of whatever file; also the living can finish."""
    command = [sys.executable, "-c", HALF_WRITTEN, str(tmp_path / "step-1.pt")]
    writers = [
        subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
    killed, living = writers
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert len(listed(tmp_path)) == 2
    with replacing(tmp_path / "step-2.pt") as temporary:
        temporary.write_text("whole")
    left = [name for name in listed(tmp_path) if name.endswith(".part")]
    assert [f"-{living.pid}-" in name for name in left] == [True]
    living.communicate("go on")
    assert listed(tmp_path) == ["step-1.pt", "step-2.pt"]


def test_a_temporary_file_of_a_container_with_this_name_stays(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """Nobody here has the number that its process has in the container."""
    number = int(Path("/proc/sys/kernel/pid_max").read_text()) - 100
    container = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec",
                 f'echo {number} > /proc/sys/kernel/ns_last_pid; "$@"; exit $?', "sh"]  # fmt: skip
    if shutil.which("unshare") is None or subprocess.run([*container, "true"]).returncode:
        pytest.skip("unshare cannot make a namespace of processes")
    command = [*container, sys.executable, "-c", HALF_WRITTEN, str(tmp_path / "step-1.pt")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as inside:
        assert inside.stdout is not None
        inside.stdout.readline()
        [temporary] = listed(tmp_path)
        with replacing(tmp_path / "step-2.pt") as other:
            other.write_text("whole")
        assert temporary in listed(tmp_path)
        inside.communicate("go on")
    assert listed(tmp_path) == ["step-1.pt", "step-2.pt"]


@pytest.mark.parametrize(
    ("name", "age", "stays"),
    [
        (".asrkit-elsewhere-1-0.part", 60.0, True),  # another machine's: may be living
        (".asrkit-elsewhere-1-0.part", 2 * 24 * 3600.0, False),
        ("{prefix}{living}-7.part", 60.0, True),  # or another process that has its number
        ("{prefix}{living}-7.part", 2 * 24 * 3600.0, False),
        ("{prefix}4194305-7.part", 60.0, False),  # no process has this number
        (".notes-host-1-0.part", 1e6, True),  # not ours
    ],
)
def test_leftovers(name: str, age: float, stays: bool, tmp_path: Path) -> None:
    path = tmp_path / name.format(prefix=files.PREFIX, living=os.getpid())
    path.touch()
    os.utime(path, (time.time() - age,) * 2)
    remove_leftovers(tmp_path)
    assert path.exists() == stays


def test_a_leftover_that_stays_keeps_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        (tmp_path / f"{files.PREFIX}4194305-{number}.part").touch()
    asked: list[str] = []

    def unlink(path: Path) -> None:
        asked.append(path.name)
        if len(asked) == 1:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        path.rename(tmp_path / f"{len(asked)}")

    monkeypatch.setattr(Path, "unlink", unlink)
    remove_leftovers(tmp_path)
    assert listed(tmp_path) == [asked[0], "2", "3"]


def test_a_link_stays_and_its_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "link").symlink_to("old")
    with replacing(tmp_path / "link") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "old").read_text() == "new"


@pytest.mark.parametrize("name", ["pipe", "folder", "null", ""])
def test_what_is_no_file_is_not_replaced(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root, `--output /dev/null` put a file in the place of the device."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("folder").mkdir()
    Path("null").symlink_to(os.devnull)
    before = listed(tmp_path)
    with pytest.raises(UserError, match="it is not a file"), replacing(name):
        pass
    assert listed(tmp_path) == before
    assert not Path(os.devnull).is_file()


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where removing fails as well as writing, as on a file system that is read-only."""

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OSError, match="Read-only") as raised, replacing(tmp_path / "x") as part:
        refuse(part)
    assert raised.value.filename == str(tmp_path / "x")


@pytest.mark.parametrize(("is_private", "mode"), [(False, 0o644), (True, 0o600)])
def test_a_file_has_its_mode_without_another_umask(
    is_private: bool, mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The umask belongs to all threads, which may create files meanwhile."""
    before = os.umask(0o022)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "umask", lambda mask: pytest.fail("the umask is changed"))
            with replacing(tmp_path / "m.bin", is_private) as temporary:
                temporary.write_text("whole")
                temporary.chmod(0o400)  # as a writer may do
    finally:
        os.umask(before)
    assert (tmp_path / "m.bin").stat().st_mode & 0o777 == mode


def test_a_name_as_long_as_names_can_be(tmp_path: Path) -> None:
    with replacing(tmp_path / ("n" * 255)) as temporary:
        temporary.write_text("x")
    assert listed(tmp_path) == ["n" * 255]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("flushes", [True, False])
def test_contents_are_on_the_disk_before_their_name(
    flushes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the name, when the block ends. Without `flushes` nothing is waited for: the control."""
    acts: list[str] = []

    def synced(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").resolve()
        acts.append("folder" if path.is_dir() else path.read_text())

    def renamed(old: Path, new: Path, act: Callable[..., None] = os.replace) -> None:
        acts.append("rename")
        act(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    with replacing(tmp_path / "x", flushes=flushes) as temporary:
        temporary.write_text("whole")
    assert acts == (["whole", "rename", "folder"] if flushes else ["rename"])


def test_only_the_owner_of_writes_renames() -> None:
    """Any other module would have to flush as it does; checkpoints of several ranks do."""
    others = [
        str(path.relative_to(PROJECT))
        for path in (PROJECT / "asrkit").rglob("*.py")
        if re.search(r"os\.(replace|rename)\(|\.rename\(|mkdtemp", path.read_text("utf-8"))
    ]
    assert sorted(others) == [
        "asrkit/atomic_write.py",
        "asrkit/commands/export.py",  # into a temporary file of this module
        "asrkit/training/sharded_checkpoints.py",
    ]


def test_a_folder_appears_whole_and_not_over_another(tmp_path: Path) -> None:
    def write(name: str, problem: Callable[[], object]) -> None:
        with new_folder(tmp_path / name) as temporary:
            (temporary / "x").write_text("new")
            problem()

    def full_disk() -> None:
        raise OSError(errno.ENOSPC, "full")

    def another() -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "x").write_text("old")

    with pytest.raises(OSError, match="full") as full:
        write("a", full_disk)
    assert full.value.filename == str(tmp_path / "a")
    assert listed(tmp_path) == []
    with pytest.raises(FileExistsError, match="/a'"):
        write("a", another)
    assert (tmp_path / "a" / "x").read_text() == "old"
    write("b", lambda: None)
    assert listed(tmp_path) == ["a", "b"]
    files.remove_folder(tmp_path / "b")
    assert listed(tmp_path) == ["a"]


def test_a_folder_of_a_killed_process_goes(tmp_path: Path) -> None:
    left = tmp_path / f"{files.PREFIX}4194305-7.part"
    (left / "inside").mkdir(parents=True)
    living = tmp_path / ".asrkit-elsewhere-1-0.part"
    living.mkdir()
    (living / "new").touch()
    os.utime(living, (0, 0))  # a long-lived folder in which a file is new
    remove_leftovers(tmp_path)
    assert listed(tmp_path) == [living.name]


def test_a_folder_with_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    """An archive may have one; a folder that cannot be made is named as it was given."""
    with new_folder(tmp_path / "a") as temporary:
        (temporary / "link").symlink_to("nowhere")
    assert (tmp_path / "a" / "link").is_symlink()
    with pytest.raises(OSError, match="'/proc/a'"), new_folder(Path("/proc/a")):
        pass


@pytest.mark.parametrize("system", ["nt", "posix"])
def test_windows_flushes_files_that_are_open_for_writing(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux flushes any file: as the control, it fails with the rule of Windows."""
    import fcntl

    def fsync(descriptor: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")

    (tmp_path / "x").touch()
    monkeypatch.setattr(files, "os", SimpleNamespace(**vars(os) | {"name": system, "fsync": fsync}))
    if system == "posix":
        with pytest.raises(OSError, match="Bad file descriptor"):
            files.flush(tmp_path / "x")
    else:
        files.flush(tmp_path / "x")
        files.flush(tmp_path)  # has no flush there


def test_what_a_killed_removal_left_goes_with_the_next(tmp_path: Path) -> None:
    """A folder of checkpoints has no other writer that would remove it."""
    for name in (f"{files.PREFIX}4194305-7.part", "step-1"):
        (tmp_path / name / "inside").mkdir(parents=True)
    files.remove_folder(tmp_path / "step-1")
    assert listed(tmp_path) == []
