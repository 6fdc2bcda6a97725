"""Start of the processes that decode a corpus: on this machine, or on a Ray cluster.

Each process runs the same command with `--workers 0`. They share the work only through its folder.
"""

import argparse
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from asrkit.errors import UserError
from asrkit.extras import need
from asrkit.transcription.leases import ATTEMPTS

HELP = ["--workers", "0", "--engine", "processes"]  # the last value of an option counts
STOPPING_SECONDS = 30.0
NONE_LEFT = "all workers ended before the work was done; run the same command to resume"

Look = Callable[[], None]  # restarts killed workers; UserError if all have ended


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C in a block, so that leases are released."""
    if threading.current_thread() is not threading.main_thread():  # only it can have handlers
        yield
        return
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def processes(options: argparse.Namespace, shards: int) -> Iterator[Look]:
    """Start processes on this machine, which share its cores and end with the block.

    Args:
        shards: number of shards, which limits the restarts of killed processes.
    """
    threads = {"OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // options.workers))}
    start = lambda: subprocess.Popen(command(options.argv), env=os.environ | threads)  # noqa: E731
    workers = [start() for _ in range(options.workers)]
    restarts = ATTEMPTS * shards

    def look() -> None:
        nonlocal restarts
        statuses = [worker.poll() for worker in workers]
        for i, status in enumerate(statuses):
            if (status or 0) < 0 and restarts:  # ended by a signal: a crash, no memory
                workers[i], statuses[i], restarts = start(), None, restarts - 1
        if None not in statuses and any(statuses):
            raise UserError(NONE_LEFT)

    try:
        yield look
    except BaseException:
        for worker in workers:
            worker.terminate()
        raise
    finally:
        for worker in workers:
            try:
                worker.wait(STOPPING_SECONDS)
            except subprocess.TimeoutExpired:
                worker.kill()


@contextmanager
def ray_tasks(options: argparse.Namespace, shards: int) -> Iterator[Look]:
    """Start tasks on a Ray cluster, with one core and, on cuda, one GPU; Ray restarts dead tasks.

    All machines need the manifest, the recordings and the output folder under the same paths. The
    tasks run on the cluster of RAY_ADDRESS, or on a new one with this machine's cores.
    """
    need("ray")
    import ray

    joined = not ray.is_initialized()
    if joined:
        ray.init(log_to_driver=False)
    gpus = 1 if options.device.startswith("cuda") else 0
    task: Any = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=ATTEMPTS * shards)(decode_shards)
    tasks = [task.remote(options.argv, os.getcwd()) for _ in range(options.workers)]

    def look() -> None:
        ended, running = ray.wait(tasks, num_returns=len(tasks), timeout=0)
        try:
            statuses = ray.get(ended)
        except ray.exceptions.RayError:
            statuses = [1]
        if not running and any(statuses):
            raise UserError(NONE_LEFT)

    try:
        yield look
    finally:
        for each in tasks:
            ray.cancel(each)
        if joined:
            ray.shutdown()


def decode_shards(argv: Sequence[str], folder: str) -> int:
    """Run the command in `folder`, as a Ray task."""
    return subprocess.run(command(argv), cwd=folder, check=False).returncode


def command(argv: Sequence[str]) -> list[str]:
    """Return the command line of a process that only decodes shards."""
    return [sys.executable, "-m", "asrkit.decode", *argv, *HELP]


Starter = Callable[[argparse.Namespace, int], AbstractContextManager[Look]]
STARTERS: dict[str, Starter] = {"processes": processes, "ray": ray_tasks}
