"""A journal of the transcripts in a folder, with which a command continues where one stopped.

A line is appended after its transcript was written. A line that was cut by a kill does not count.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from asrkit.data.recording import Recording
from asrkit.transcription.output import Heard, Output
from asrkit.version import __version__

NAME = ".decoded.jsonl"  # in the folder of the transcripts


class Journal:
    """The journal of an output folder. The last line of a transcript counts.

    Args:
        same: value, as JSON, that the transcripts depend on besides recordings and format.
    """

    def __init__(self, output: Output, same: Any) -> None:
        self.output, self.same = output, [__version__, output.form, same]
        self.path = Path(output.folder or "", NAME)
        # By the name of a transcript: its recording's key, and the texts of the channels.
        self.lines: dict[str, tuple[str, list[Heard]]] = {}
        self.keys: dict[str, str] = {}  # by transcript: the recording's key before its decode
        for line in self.path.read_bytes().splitlines() if self.path.is_file() else ():
            with suppress(ValueError, TypeError):
                name, key, channels = json.loads(line)
                self.lines[name] = key, [Heard(*each) for each in channels]

    def key(self, channels: Sequence[Recording]) -> str:
        """Return a hash of all that the transcript of a recording depends on."""
        state = None
        with suppress(OSError, ValueError):  # not a file
            found = os.stat(channels[0].audio)
            state = found.st_size, found.st_mtime_ns
        value = [self.same, state, [job.model_dump() for job in channels]]
        return hashlib.sha256(json.dumps(value).encode()).hexdigest()

    def find(self, channels: Sequence[Recording]) -> Sequence[Heard | None]:
        """Return the texts of a recording whose transcript is in the folder; otherwise ()."""
        path = self.output.path(channels[0])
        key = self.keys[path.name] = self.key(channels)
        known, heard = self.lines.get(path.name, ("", []))
        return heard if known == key and path.is_file() else ()

    def add(self, channels: Sequence[Recording], heard: Sequence[Heard | None]) -> None:
        """Append a recording that `find` did not find and whose transcript was written.

        A recording with a channel that could not be read is not appended.
        """
        if None in heard:
            return
        name = self.output.path(channels[0]).name
        line = json.dumps([name, self.keys[name], heard])
        with self.path.open("ab") as file:
            file.write(f"\n{line}".encode())  # a line of its own, also after one that was cut
