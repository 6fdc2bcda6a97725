"""Writer of a manifest without its bad lines."""

import json
import os
from collections.abc import Container
from pathlib import Path

from asrkit.atomic_write import replacing
from asrkit.data.manifest import lines_of


def write_clean(manifest: str, output: str, bad_lines: Container[int]) -> tuple[int, int]:
    """Copy a manifest without its bad lines; return the numbers of lines written and read.

    Every key is kept. Relative paths become relative to the new file's folder.
    """
    source, target = Path(manifest).parent.resolve(), Path(output).parent.resolve()
    kept = all_ = 0
    with (
        replacing(output) as temporary,
        temporary.open("wb") as file,
    ):
        for number, line in lines_of(manifest):
            all_ += 1
            if number in bad_lines:
                continue
            values = json.loads(line)
            values["audio"] = moved(values["audio"], source, target)
            # A lone surrogate, in a key that asrkit does not read, can only be an escape.
            line = json.dumps(values, ensure_ascii=False).encode("utf-8", "backslashreplace")
            file.write(line + b"\n")
            kept += 1
    return kept, all_


def moved(audio: str, source: Path, target: Path) -> str:
    """Make a path relative to the folder `target`, not `source`; keep an absolute path."""
    if os.path.isabs(audio):
        return audio
    folder = (source / audio).parent.resolve()  # "linked/../x.wav" is not "x.wav"
    return os.path.relpath(folder / Path(audio).name, target)
