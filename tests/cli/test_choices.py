"""The copies of names and limits with which parsers do without torch; --help imports no torch."""

import subprocess
import sys

import pytest

from asrkit import audio
from asrkit.audio.samples import MAX_CHANNELS
from asrkit.backends import BACKENDS
from asrkit.backends.export_metadata import CONTENTS
from asrkit.cli import choices
from asrkit.data.corpora import KINDS
from asrkit.data.corpora.registry import READERS
from asrkit.interop import FORMATS as CHECKPOINTS
from asrkit.lm.ngram import MAX_ORDER
from asrkit.runtime.endpoint import EAGERNESS, PAUSE_MS
from asrkit.runtime.formats import FORMATS
from asrkit.runtime.threads import MOST_THREADS
from asrkit.transcription.shards import LEASE_SECONDS
from asrkit.transcription.workers import STARTERS
from tests.running import PARSERS

OWNERS = {
    "BACKENDS": tuple(BACKENDS), "CHECKPOINTS": tuple(CHECKPOINTS), "CONTENTS": CONTENTS,
    "CORPORA": KINDS,
    "EAGERNESS": tuple(EAGERNESS), "ENGINES": tuple(STARTERS),
    "EXPORTS": choices.EXPORTS, "FORMATS": tuple(FORMATS),  # no other module names the exports
    "LEASE_SECONDS": LEASE_SECONDS, "MAX_CHANNELS": MAX_CHANNELS, "MAX_ORDER": MAX_ORDER,
    "MOST_THREADS": MOST_THREADS, "PAUSE_MS": PAUSE_MS, "SAMPLE_RATE": audio.SAMPLE_RATE,
}  # fmt: skip


def test_choices_equal_their_owners() -> None:
    copies = {name: value for name, value in vars(choices).items() if name.isupper()}
    assert copies == OWNERS
    assert list(KINDS) == list(READERS)


HELP = f"""
import sys
from asrkit.__main__ import main
for command in {PARSERS}:
    try:
        main([*command.split(), "--help"])
    except SystemExit:
        pass
slow = {{"torch", "numpy", "pydantic", "asyncio", "importlib.metadata"}}
print(sorted(slow & sys.modules.keys()))
"""


@pytest.mark.parametrize("program", [HELP, f"import numpy{HELP}"])
def test_help_imports_neither_torch_nor_numpy(program: str) -> None:
    """Of any command; with numpy, as a control."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("usage: asrkit") == len(PARSERS)
    assert ("numpy" in done.stdout.splitlines()[-1]) == (program != HELP)
    assert (done.stdout.splitlines()[-1] == "[]") == (program == HELP)
