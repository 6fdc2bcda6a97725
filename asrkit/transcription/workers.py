"""Decoding by several processes of this machine."""

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing import active_children, get_context, parent_process

from asrkit.data.recording import Recording
from asrkit.errors import UserError, shown
from asrkit.runtime import Recognizer
from asrkit.transcription.batches import Decoded, outcomes

LARGEST_PART = 100  # recordings


@cache
def recognizer_of(load: bytes) -> Recognizer:
    """Return this process's recogniser, which all its parts use."""
    return pickle.loads(load)()


def decode_part(
    load: bytes, batch_seconds: float, first: int, jobs: Sequence[Recording]
) -> list[Decoded]:
    """Decode a part of the jobs in another process; `load` is a pickled function."""
    found = outcomes(recognizer_of(load), jobs, batch_seconds)
    return [outcome._replace(number=first + outcome.number) for outcome in found]


def decode_in_parts(
    workers: int, load: Callable[[], Recognizer], jobs: Sequence[Recording], batch_seconds: float
) -> Iterator[Decoded]:
    """Yield the outcomes of jobs that `workers` processes decode, in the order of their ends.

    The outcomes of a part come when all of it is decoded.

    Args:
        load: function of a module that returns the recogniser.
    """
    size = max(1, min(LARGEST_PART, -(-len(jobs) // (4 * workers))))
    left = {first: jobs[first : first + size] for first in range(0, len(jobs), size)}
    shared = pickle.dumps(load), batch_seconds
    with ProcessPoolExecutor(workers, get_context("spawn"), end_with_parent) as pool:
        futures = {pool.submit(decode_part, *shared, *part): part[0] for part in left.items()}
        try:
            for future in as_completed(futures):
                yield from future.result()
                del left[futures[future]]
        except BrokenProcessPool:
            first = next(iter(left.values()))[0].id
            raise UserError(
                f"a worker was killed near {shown(first)}: is memory short? With --output-dir, the "
                "same command decodes what is left"
            ) from None
        except BaseException:
            for process in active_children():
                process.terminate()
            pool.shutdown(cancel_futures=True)
            raise


def end_with_parent() -> None:
    """Let a process end at Ctrl-C, and whenever the process that started it ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)

    def wait() -> None:
        if parent := parent_process():
            parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
