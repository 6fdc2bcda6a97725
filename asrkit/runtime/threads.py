"""CPU threads of a recogniser or a training: how many torch uses, and what happens after a fork.

The products of a small network are too small to share. Its threads would wait for each other, and
wait long on a busy machine, so torch uses one thread for it. Threads of a larger network sleep
while they wait: `Parser.run` sets OpenMP's policy, which must be known before torch is imported.
"""

import functools
import multiprocessing
import os

import torch

from asrkit.errors import UserError, shown, whole_number

SMALL = 10_000_000  # parameters of a network below which a second thread does not help
MOST_THREADS = 1024


class _Setting:
    chosen: int | None = None  # number of threads that this module set last in this process
    before = 1  # number of threads that another module or torch itself set
    forked = False  # whether this process was forked from one with a recogniser


def set_threads(threads: int | None, parameters: int) -> int:
    """Set and return torch's number of threads for a network on the CPU, in the whole process.

    Args:
        threads: number of threads. None: one for a small network and in processes of
            multiprocessing, which share the cores; otherwise torch's present number.
        parameters: number of the network's parameters.

    Raises:
        UserError: if the number is out of range.
    """
    if threads is None:
        alone = not _Setting.forked and multiprocessing.parent_process() is None
        return _set(_before() if alone and parameters >= SMALL else 1)
    if whole_number(threads, 1, MOST_THREADS) is None:
        raise UserError(f"threads must be 1 to {MOST_THREADS}, got {shown(threads)}")
    if threads > 1 and _Setting.forked:
        raise UserError(
            f"threads must be 1 in a forked process, got {threads}: OpenMP's threads do not "
            "survive a fork; use more threads in processes started by multiprocessing's spawn"
        )
    return _set(threads)


def leave_cores(kind: str, threads: int) -> None:
    """Set torch's threads: one beside ONNX Runtime, which has its own threads, else `threads`.

    Torch's threads stay busy for a while after their work, and slow ONNX Runtime down.
    """
    _set(1 if kind.startswith("onnx") else threads)


def _before() -> int:
    """Return the number of threads that another module or torch itself set."""
    if torch.get_num_threads() != _Setting.chosen:
        _Setting.before = torch.get_num_threads()
    return _Setting.before


def _set(threads: int) -> int:
    _before()
    _Setting.chosen = threads
    torch.set_num_threads(threads)
    return threads


@functools.cache  # once per process
def survive_forks() -> None:
    """Set torch to one thread in every process that is forked from this one from now on.

    A forked process has none of its parent's threads, but OpenMP would wait for them forever.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    _Setting.forked = True
    torch.set_num_threads(1)
