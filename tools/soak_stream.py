"""Stream hours of audio as fast as possible, and compare each cycle of it with the second one.

    python tools/soak_stream.py data/an4/dev.jsonl --hours 10 --backends eager,onnx-int8

The recordings of a manifest, with pauses between them, are repeated in one stream. A cycle is a
whole number of chunks, so from the second one on each must have the same words, later by the length
of the cycles before it. The first cycles are also recognised at once. Prints a row a backend. Exit
status: 1 if a word or its time differs by more than 1 ms, or if the time of a chunk or the memory
grew by a fifth.
"""

import argparse
import itertools
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from load_test import read, usage
from tqdm import tqdm

import asrkit
from asrkit.audio import SAMPLE_RATE
from asrkit.cli.table import head, row
from asrkit.errors import UserError
from asrkit.runtime import Recognizer, Word

TITLES = ("backend", "hours", "words", "that differ", "from one step",
          "ms a chunk, first, last", "MB, first, last")  # fmt: skip
PAUSE_S = 0.7
MOST_GROWTH = 1.2


def cycle_of(recordings: list[np.ndarray], chunk: int) -> np.ndarray:
    """Return the recordings with pauses between them, padded to whole chunks, (n,)."""
    pause = np.zeros(round(PAUSE_S * SAMPLE_RATE), dtype=np.int16)
    joined = np.concatenate([part for each in recordings for part in (each, pause)])
    return np.pad(joined, (0, -len(joined) % chunk))


def differences(words: Sequence[Word], expected: Sequence[Word], later: float = 0.0) -> int:
    """Count the words that are not the expected ones, `later` seconds later."""
    return sum(
        a is None
        or b is None
        or a.text != b.text
        or max(abs(a.start - b.start - later), abs(a.end - b.end - later)) > 0.001
        for a, b in itertools.zip_longest(words, expected)
    )


def soak(name: str, recognizer: Recognizer, recordings: list[np.ndarray], hours: float) -> bool:
    """Stream through a recogniser, print its row, and return whether nothing differs or grows."""
    if recognizer.context == "full":
        sys.exit("a stream in full context has no chunks: take a model that decodes in chunks")
    chunk = SAMPLE_RATE * recognizer.chunk_size * recognizer.frame_ms // 1000
    cycle = cycle_of(recordings, chunk)
    seconds = len(cycle) / SAMPLE_RATE
    count = max(8, round(3600 * hours / seconds))
    session, chunks = recognizer.start(SAMPLE_RATE), len(cycle) // chunk
    costs: list[tuple[float, float]] = []  # ms of a chunk, MB
    for _ in tqdm(range(count), desc=name, disable=None, leave=False):
        started = time.process_time()
        for packet in np.split(cycle, chunks):
            session.accept(packet)
        costs.append((1000 * (time.process_time() - started) / chunks, usage(os.getpid())[1]))
    words = session.finish().words
    cycles: list[list[Word]] = [[] for _ in range(count)]
    for word in words:
        cycles[min(count - 1, int(word.start / seconds))].append(word)
    wrong = sum(
        differences(each, cycles[1], number * seconds)
        for number, each in enumerate(cycles[1:-1])  # the end of the last one has no words after it
    )
    begin = [*recognizer.transcribe(np.tile(cycle, 3), SAMPLE_RATE).words]
    apart = differences(cycles[0] + cycles[1], [w for w in begin if w.start < 2 * seconds])
    part = count // 4
    first, last = (np.median(each, axis=0) for each in (costs[1 : 1 + part], costs[-part:]))
    cells = (name, f"{count * seconds / 3600:.1f}", len(words), wrong, apart)
    pairs = [f"{a:.2f}, {b:.2f}" for a, b in zip(first, last, strict=True)]
    print(row((*cells, *pairs)), flush=True)
    return bool(words) and not wrong and not apart and bool((last <= MOST_GROWTH * first).all())


def main() -> int:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("manifest", type=Path, help="recordings to repeat")
    arguments.add_argument(
        "--model", default="small-en-alnum", help="model (default small-en-alnum)"
    )
    arguments.add_argument("--hours", type=float, default=10.0, help="hours of audio (default 10)")
    arguments.add_argument(
        "--backends", default="eager", help="separated by commas (default eager)"
    )
    arguments.add_argument("--search", default="greedy", help="greedy (default) or prefix_beam")
    arguments.add_argument("--lm", help="n-gram model for prefix_beam (default none)")
    arguments.add_argument(
        "--endpoint-ms", type=int, help="pause that ends a segment (default none)"
    )
    arguments.add_argument("--second-pass", help="context of the second pass")
    options = arguments.parse_args()
    recordings, passed = read(options.manifest), True
    end = None if options.endpoint_ms is None else asrkit.Endpointer(options.endpoint_ms)
    print(head(TITLES), flush=True)
    for name in options.backends.split(","):
        recognizer = asrkit.load(
            options.model, backend=name, search=options.search, lm=options.lm, endpointer=end,
            second_pass=options.second_pass,
        )  # fmt: skip
        passed &= soak(name, recognizer, recordings, options.hours)
    return 0 if passed else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"soak_stream: {error}")
