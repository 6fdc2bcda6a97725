"""The number of CPU threads of a recogniser or a training."""

import multiprocessing
import os

from asrkit.errors import UserError, shown, whole_number

SMALL = 10_000_000  # parameters of a network below which a second thread does not help
MOST_THREADS = 1024


def threads_for(threads: int | None, parameters: int) -> int | None:
    """Return the number of threads for a network on the CPU; None: the runtime's own.

    The products of a small network are too small to share: its threads would wait for each other.

    Args:
        threads: number of threads. None: one for a small network and in processes of
            multiprocessing, which share the cores.
        parameters: number of the network's parameters.

    Raises:
        UserError: if the number is out of range.
    """
    if threads is None:
        is_alone = multiprocessing.parent_process() is None
        return None if is_alone and parameters >= SMALL else 1
    if whole_number(threads, 1, MOST_THREADS) is None:
        raise UserError(f"threads must be 1 to {MOST_THREADS}, got {shown(threads)}")
    return threads


def usual_threads() -> int:
    """Return OMP_NUM_THREADS, the first of several numbers; or the number of cores."""
    text = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    number = int(text) if text.isdecimal() and len(text) < 9 else 0
    return min(number, MOST_THREADS) or cores or 1
