"""Writing files so that a crash leaves the old one or the new one, never half of one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path`, moved onto it when the block ends without an exception."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        os.umask(mask := os.umask(0))
        temporary.chmod(0o666 & ~mask)  # safetensors' files are for their owner alone
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
