"""Atomic writes: the old file or the new one, and no temporary one."""

import errno
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from asrkit.atomic_write import new_folder, replacing
from asrkit.errors import UserError
from tests.conftest import PROJECT


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


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


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_a_file_has_the_mode_of_the_umask(mask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        with replacing(tmp_path / "m.bin") as temporary:
            temporary.write_text("whole")
            temporary.chmod(0o400)  # as a writer may do
    finally:
        os.umask(before)
    assert (tmp_path / "m.bin").stat().st_mode & 0o777 == mode


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_contents_are_on_the_disk_before_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the name, when the block ends."""
    acts: list[str] = []

    def synced(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").resolve()
        acts.append("folder" if path.is_dir() else path.read_text())

    def renamed(old: Path, new: Path, act: Callable[..., None] = os.replace) -> None:
        acts.append("rename")
        act(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    with replacing(tmp_path / "x") as temporary:
        temporary.write_text("whole")
    assert acts == ["whole", "rename", "folder"]


def test_only_the_owner_of_writes_renames() -> None:
    """Any other module would have to flush as it does."""
    others = [
        str(path.relative_to(PROJECT))
        for path in (PROJECT / "asrkit").rglob("*.py")
        if re.search(r"os\.(replace|rename)\(|\.rename\(|mkdtemp", path.read_text("utf-8"))
    ]
    assert sorted(others) == [
        "asrkit/atomic_write.py",
        "asrkit/commands/export.py",  # into a temporary file of this module
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
    with pytest.raises(UserError, match="/a exists already"):
        write("a", another)
    assert (tmp_path / "a" / "x").read_text() == "old"
    write("b", lambda: None)
    assert listed(tmp_path) == ["a", "b"]
    assert (tmp_path / "b").stat().st_mode == (tmp_path / "a").stat().st_mode
