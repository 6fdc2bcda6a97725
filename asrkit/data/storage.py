"""Readers of parts of files in a folder, on a disk or in an object store."""

import os
from typing import BinaryIO, NamedTuple

import fsspec
from fsspec.implementations.local import LocalFileSystem

from asrkit.data.manifest import ManifestError
from asrkit.errors import shown

WHEN = ("mtime", "ETag", "etag", "md5Hash", "LastModified", "updated", "created")


class Stamp(NamedTuple):
    """The state of a file, to detect changes."""

    size: int  # bytes
    when: str  # time of the last change, or the store's own marker


class Folder(NamedTuple):
    """A folder: a path, or a URL such as s3://bucket/folder, which needs fsspec's package."""

    url: str

    @property
    def is_local(self) -> bool:
        return "://" not in self.url

    def located(self) -> tuple[fsspec.AbstractFileSystem, str]:
        """Return the file system, opened in this process for safe forks, and the path there."""
        if self.is_local:
            return LocalFileSystem(), os.path.abspath(self.url)
        try:
            system, path = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:  # missing package, unknown protocol
            raise ManifestError(f"{shown(self.url, 300)} cannot be read: {error}") from None
        return system, path

    @property
    def system(self) -> fsspec.AbstractFileSystem:
        return self.located()[0]

    def path(self, name: str) -> str:
        return f"{self.located()[1]}/{name}"

    def stamps(self) -> dict[str, Stamp]:
        """Return the state of all files in the folder, by name."""
        found = self.system.ls(self.path(""), detail=True, refresh=True)
        return {
            info["name"].rpartition("/")[2]: _stamp(info)
            for info in found if info["type"] == "file"
        }  # fmt: skip

    def stamp(self, name: str) -> Stamp:
        return _stamp(self.system.info(self.path(name)))

    def open(self, name: str) -> BinaryIO:
        """Open a file with small blocks, because only the headers of a remote tar are read."""
        return self.system.open(self.path(name), "rb", block_size=1 << 16)

    def read(self, name: str, start: int, size: int) -> bytes:
        """Read `size` bytes from `start` on; raise OSError if there are fewer."""
        found = self.system.cat_file(self.path(name), start=start, end=start + size)
        if len(found) != size:
            raise OSError(f"{name} ends before byte {start + size}")
        return found


def _stamp(info: dict[str, object]) -> Stamp:
    when = next((info[key] for key in WHEN if info.get(key) is not None), "")
    return Stamp(int(str(info["size"])), str(when))
