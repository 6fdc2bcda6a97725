"""Small commands that write files, run in forked processes that a function may disturb."""

import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from asrkit.__main__ import main
from tests.torture.cage import CHANGES, WRITES

KEPT = Path(__file__).parents[1] / "kept"
USED = ("audio", "train.jsonl", "dev.jsonl", "config.yaml")
MODEL, OTHER = "models/exported.safetensors", "models/position-none.safetensors"
DECODE = ["decode", "--model", MODEL]
EXPORT = ["export", "--model", MODEL, "--audio", "audio/0.flac", "--output", "out/m", "--format"]
WIDE = ["--chunk-ms", "640"]
NGRAM = ["ngram", "train.jsonl", "--output", "out/lm.arpa", "--order"]
SRT = [*DECODE, "--output-dir", "out", "--format", "srt", "--search", "prefix_beam", "audio"]
TRAIN = ["train", "--config", "config.yaml", "--resume", "training.checkpoint_every_steps=1",
         "training.export=false"]  # fmt: skip
BY_WORKERS = ["--workers", "2", "--output-dir", "out", "--format", "jsonl"]
DEEDS: dict[str, list[list[str]]] = {  # the command, and one that wrote older results before
    "train": [TRAIN],
    "shard": [["data", "shard", "train.jsonl", "--output", "out/shards", "--shard-size", "3"]],
    "pack": [["pack", "--model", each, "--output", "out/m"] for each in (MODEL, OTHER)],
    "ngram": [[*NGRAM, "3"], [*NGRAM, "2"]],
    "onnx": [[*EXPORT, "onnx"], [*EXPORT, "onnx", *WIDE]],
    "decode": [[*SRT, "--beam", "4"], [*SRT, "--postprocess", "spelled"]],
    "corpus": [[*DECODE, "--manifest", "train.jsonl", *BY_WORKERS]],
}  # fmt: skip

HANGS = 1800.0  # seconds that no run takes, on a busy machine either


class Run(NamedTuple):
    """The end of a run: exit status (negative: a signal), its text, seconds, changes of files."""

    status: int
    text: str
    seconds: float
    changes: int


def nothing(number: int) -> None:
    pass


def started(
    command: list[str], folder: Path, disturb: Callable[[int], None] = nothing, after: float = HANGS
) -> Run:
    """Run a command in a forked process in a folder.

    Args:
        disturb: function that is called with 0 at the start, and before each change of a file with
            its number.
        after: seconds after which the process is killed.
    """
    noise, count = folder.parent / "noise.txt", folder.parent / "count.txt"
    noise.write_text("")
    count.write_text("")
    began = time.monotonic()

    def run() -> None:
        os.chdir(folder)
        for stream in (1, 2):
            os.dup2(os.open(noise, os.O_WRONLY | os.O_APPEND), stream)
        tqdm.set_lock(threading.RLock())  # the one of all forked processes stays locked
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        watch(disturb, os.open(count, os.O_WRONLY))
        sys.exit(main(command))

    process = get_context("fork").Process(target=run)
    process.start()
    process.join(after)
    process.kill()
    process.join()
    assert process.exitcode is not None
    text, seconds = noise.read_text(errors="replace"), time.monotonic() - began
    return Run(process.exitcode, text, seconds, count.stat().st_size)


def watch(disturb: Callable[[int], None], count: int) -> None:
    """Call a function before each change of a file in this process, and count the changes."""
    number, inside = 0, False
    disturb(0)

    def audit(event: str, values: Any) -> None:
        nonlocal number, inside
        writes = event == "open" and isinstance(values[2], int) and values[2] & WRITES
        if not inside and (writes or event in CHANGES):
            number, inside = number + 1, True
            os.write(count, b".")
            disturb(number)
            inside = False

    sys.addaudithook(audit)


def prepared(name: str, folder: Path) -> Run:
    """Write `folder` with inputs, older results in `old`, and those of a whole run in `whole`."""
    (folder / "models").mkdir(parents=True)
    for each in (*USED, MODEL, OTHER):
        source = KEPT / each
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, folder / each)
    command, *before = DEEDS[name]
    for each in before:
        former = started(each, folder)
        assert former.status == 0, former.text
        (folder / "out").rename(folder / "old")
    (folder / "old").mkdir(exist_ok=True)
    for run in (here, started):  # in this process first: what it imports, forked ones have
        shutil.rmtree(folder / "out", ignore_errors=True)
        shutil.copytree(folder / "old", folder / "out")
        whole = run(command, folder)
        assert whole.status == 0, whole.text
    (folder / "out").rename(folder / "whole")
    return whole


def here(command: list[str], folder: Path) -> Run:
    before = os.getcwd()
    tqdm.monitor_interval = 0  # a thread, whose locks forked processes would inherit
    os.chdir(folder)
    try:
        with open(os.devnull, "w") as quiet, redirect_stdout(quiet), redirect_stderr(quiet):
            return Run(main(command), "", 0.0, 0)
    finally:
        logging.getLogger("asrkit").handlers.clear()  # of a training, for the closed file
        os.chdir(before)
