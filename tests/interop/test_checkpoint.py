"""Archives and weights of others are data: what is hostile in them is an error of one line."""

import gzip
import io
import os
import pickle
import tarfile
import zipfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from asrkit.interop.checkpoint import (
    LONGEST_YAML,
    CheckpointError,
    open_archive,
    read_settings,
    read_weights,
)

pytestmark = pytest.mark.usefixtures("collected")  # texts are nested deeply


def tar(path: Path, *members: tuple[str, bytes], **changes: Any) -> Path:
    """An archive of these members; `changes` are attributes of the last of them."""
    with tarfile.open(path, "w") as archive:
        for i, (name, data) in enumerate(members, start=1):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if i == len(members):
                for key, value in changes.items():
                    setattr(info, key, value)
            archive.addfile(info, io.BytesIO(data))
    return path


def test_an_archive(tmp_path: Path) -> None:
    """With and without a leading ./"""
    with open_archive(tar(tmp_path / "a.nemo", ("./a.yaml", b"x: 1"), ("b/c", b"2"))) as archive:
        assert archive.read("a.yaml") == b"x: 1"
        assert archive.read("b/c") == b"2"
        with pytest.raises(CheckpointError, match=r"^the archive has no file 'd'$"):
            archive.read("d")


@pytest.mark.parametrize(
    "changes",
    [
        {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"},
        {"type": tarfile.LNKTYPE, "linkname": "b"},
        {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 5},
        {"type": tarfile.FIFOTYPE},
        {"name": "../a"},
        {"name": "/a"},
    ],
)
def test_only_plain_files_are_read(changes: dict[str, Any], tmp_path: Path) -> None:
    path = tar(tmp_path / "x.nemo", ("b", b"1"), ("a", b"22"), **changes)
    with open_archive(path) as archive:
        assert archive.read("b") == b"1"
        with pytest.raises(CheckpointError, match="the archive has no file 'a'"):
            archive.read("a")


@pytest.mark.parametrize(("before", "is_read"), [(999, True), (1000, False)])
def test_an_archive_of_more_members_than_any_model_has(
    before: int, is_read: bool, tmp_path: Path
) -> None:
    path = tar(tmp_path / "x.nemo", *[("b", b"")] * before, ("a", b"1"))
    with (
        open_archive(path) as archive,
        nullcontext()
        if is_read
        else pytest.raises(CheckpointError, match="the archive has no file 'a'"),
    ):
        assert archive.read("a") == b"1"


def test_a_member_without_its_bytes_and_an_archive_that_is_compressed(tmp_path: Path) -> None:
    info, path = tarfile.TarInfo("a"), tmp_path / "x.nemo"
    info.size = 1 << 40
    for data, told in (
        (info.tobuf() + bytes(10240), "or damaged: unexpected end"),
        (gzip.compress(info.tobuf() + bytes(10240)), "not a tar archive, or damaged"),
    ):
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match=told), open_archive(path) as archive:
            archive.read("a")


def test_settings() -> None:
    assert read_settings(b"a: [1, b]", "x") == {"a": [1, "b"]}
    for data, told in [
        (b"a: &a [*a]", "aliases"),
        (b"!!python/object/apply:os.system [id]", "could not determine a constructor"),
        (b"[" * 5000, "nested too deeply"),
        (b"\xff", "UTF-8"),
        (b"text", "keys and values"),
        (b"#" * (LONGEST_YAML + 1), "more than"),
    ]:
        with pytest.raises(CheckpointError, match=told):
            read_settings(data, "x")


def saved(values: object) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(values, file)
    return file


def test_weights() -> None:
    weights = {"a": torch.randn(3, 4), "b": torch.tensor(7), "tied": torch.zeros(10_000)}
    weights["too"] = weights["tied"]
    for values in (weights, {"state_dict": weights, "epoch": 3}):
        found = read_weights(saved(values), "x")
        assert found.keys() == weights.keys()
        assert all(found[key].equal(weights[key]) for key in weights)


class Runs:
    """Unpickled without care, it leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_weights_that_are_more_than_weights(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    compressed = io.BytesIO()
    with zipfile.ZipFile(compressed, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in (source := zipfile.ZipFile(saved({"a": torch.zeros(1000)}))).namelist():
            packed.writestr(name, source.read(name))
    whole = saved({"a": torch.zeros(1000)}).getvalue()
    for file, told in [
        (saved({"a": Runs(mark)}), "damaged, or has more than weights"),
        (io.BytesIO(pickle.dumps(Runs(mark))), "damaged, or has more than weights"),
        (saved({"a": torch.zeros(1).expand(1 << 30)}), "are larger than the file"),
        (saved({str(i): torch.zeros(1).expand(2000) for i in range(100)}), "are larger than"),
        (saved({"a": torch.eye(3).to_sparse()}), "is not a tensor"),
        (saved({3: torch.zeros(1)}), "3 is not a tensor"),
        (saved({"a": 3}), "'a' is not a tensor"),
        (saved(torch.zeros(1)), "must have a dict of tensors"),
        (io.BytesIO(whole[: len(whole) // 2]), "damaged, or has more than weights"),
        (compressed, "was not written by torch.save"),
    ]:
        with pytest.raises(CheckpointError, match=told):
            read_weights(file, "x")
        assert not mark.exists()
    hostile = saved({"a": Runs(mark)})
    hostile.seek(0)
    torch.load(hostile, weights_only=False)  # control: without care it runs
    assert mark.exists()
