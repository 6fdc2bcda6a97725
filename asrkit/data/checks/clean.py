"""Writer of a manifest with changed lines, or without some of them."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asrkit.atomic_write import replacing
from asrkit.data.manifest import lines_of

Values = dict[str, Any]


def rewrite(
    manifest: str, output: str, change: Callable[[int, bytes], Values | None]
) -> tuple[int, int]:
    """Copy the changed lines of a manifest; return the numbers of lines written and read.

    Every key is kept. Relative paths become relative to the new file's folder.

    Args:
        change: function from the number of a line, from 1, and its JSON to the new values, or to
            None for a line to leave out.
    """
    source, target = Path(manifest).parent.resolve(), Path(output).parent.resolve()
    kept = all_ = 0
    with replacing(output) as temporary, temporary.open("wb") as file:
        for number, line in lines_of(manifest):
            all_ += 1
            values = change(number, line)
            if values is None:
                continue
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
