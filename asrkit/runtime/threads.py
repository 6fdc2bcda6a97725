"""CPU threads of a recogniser or a training: how many torch uses, and what happens after a fork.

The products of a small network are too small to share. Its threads would wait for each other, and
wait long on a busy machine, so torch uses one thread for it. Threads of a larger network sleep
while they wait: `Parser.run` sets OpenMP's policy, which must be known before torch is imported.
"""

import multiprocessing
import os

import torch

from asrkit.errors import UserError, shown, whole_number

SMALL = 10_000_000  # parameters of a network below which a second thread does not help
MOST_THREADS = 1024


class _Setting:
    """The number of threads that this module set last in this process, and the one before it."""

    own: int | None = None
    before: int = 1


class _Fork:
    """Whether the handler is registered, and whether it ran, that is, this process was forked."""

    registered = forked = False


def set_threads(threads: int | None, parameters: int) -> int:
    """Set and return torch's number of threads for a network on the CPU, in the whole process.

    Args:
        threads: number of threads. None: one for a small network and in processes of
            multiprocessing, which share the cores; otherwise torch's present number.
        parameters: number of the network's parameters.

    Raises:
            UserError: if the number is out of range.
    """
    _remember()
    if threads is not None:
        wanted = whole_number(threads, 1, MOST_THREADS)
        if wanted is None:
            raise UserError(f"threads must be 1 to {MOST_THREADS}, got {shown(threads)}")
        if wanted > 1 and _Fork.forked:
            raise UserError(
                f"threads must be 1 in a forked process, got {wanted}: OpenMP's threads do not "
                "survive a fork; use more threads in processes started by multiprocessing's spawn"
            )
    elif parameters < SMALL or _Fork.forked or multiprocessing.parent_process() is not None:
        wanted = 1
    else:
        wanted = _Setting.before
    _Setting.own = wanted
    torch.set_num_threads(wanted)
    return wanted


def leave_cores(kind: str, threads: int) -> None:
    """Set torch's threads: one beside ONNX Runtime, which has its own threads, else `threads`.

    Torch's threads stay busy for a while after their work. On two cores ONNX Runtime took 30 ms for
    a chunk of one stream beside two torch threads, and 12 ms beside one.
    """
    _remember()
    _Setting.own = 1 if kind.startswith("onnx") else threads
    torch.set_num_threads(_Setting.own)


def _remember() -> None:
    """Remember the number of threads that another module or torch itself set."""
    if torch.get_num_threads() != _Setting.own:
        _Setting.before = torch.get_num_threads()


def survive_forks() -> None:
    """Set torch to one thread in every process that is forked from this one from now on.

    A forked process has none of its parent's threads, but OpenMP would wait for them forever.
    """
    if not _Fork.registered and hasattr(os, "register_at_fork"):
        _Fork.registered = True
        os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    _Fork.forked = True
    torch.set_num_threads(1)
