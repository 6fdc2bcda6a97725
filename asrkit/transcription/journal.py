"""A journal of the transcripts in a folder, with which a command continues where one stopped.

Each run writes a file of its own, so several runs may share a folder. A line is appended after its
transcript is on the disk. Half a line, as a killed process leaves it, counts as none.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from asrkit.atomic_write import sha256_of
from asrkit.data.recording import Recording
from asrkit.transcription.output import Heard, Output
from asrkit.version import __version__

FOLDER = ".decoded"  # in the folder of the transcripts


class Journal:
    """The journal of an output folder.

    Args:
        same: value, as JSON, that the transcripts depend on besides recordings and format.
    """

    def __init__(self, output: Output, same: Any) -> None:
        self.output, self.same = output, digest([__version__, output.form, same])
        self.folder = Path(output.folder or "", FOLDER)
        self.path = self.folder / f"{secrets.token_hex(8)}.jsonl"
        # By a recording's key and the hash of its transcript: the texts of its channels.
        self.lines: dict[tuple[str, str], list[Heard]] = {}
        self.keys: dict[Path, str] = {}  # by transcript: the recording's key before its decode
        for path in filter(Path.is_file, self.folder.glob("*.jsonl")):
            for line in path.read_bytes().splitlines():
                with suppress(ValueError, TypeError):
                    key, transcript, channels = json.loads(line)
                    self.lines[key, transcript] = [Heard(*each) for each in channels]

    def key(self, channels: Sequence[Recording]) -> str:
        """Return a hash of all that the transcript of a recording depends on."""
        state = None
        with suppress(OSError, ValueError):  # not a file
            found = os.stat(channels[0].audio)
            state = found.st_size, found.st_mtime_ns
        return digest([self.same, state, [job.model_dump() for job in channels]])

    def find(self, channels: Sequence[Recording]) -> Sequence[Heard | None]:
        """Return the texts of a recording whose transcript is in the folder; otherwise ()."""
        path = self.output.path(channels[0])
        key = self.keys[path] = self.key(channels)
        if not self.lines or not path.is_file():
            return ()
        return self.lines.get((key, sha256_of(path)), ())

    def add(self, channels: Sequence[Recording], heard: Sequence[Heard | None]) -> None:
        """Append a recording that `find` did not find and whose transcript was written.

        A recording with a channel that could not be read is not appended.
        """
        if None in heard:
            return
        path = self.output.path(channels[0])
        line = self.keys[path], sha256_of(path), heard
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(json.dumps(line).encode() + b"\n")


def digest(value: Any) -> str:
    """Return the hash of a value, as JSON."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
