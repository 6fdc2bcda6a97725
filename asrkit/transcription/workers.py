"""Starting the processes that decode a corpus: here, or on a Ray cluster.

Each runs the same command with `--workers 0`, and they share the work through its folder alone.
"""

import argparse
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from asrkit.errors import UserError
from asrkit.extras import need
from asrkit.transcription.leases import ATTEMPTS

HELP = ["--workers", "0", "--engine", "processes"]  # the last of an option's values counts
STOPPING_SECONDS = 30.0
NONE_LEFT = "all workers have ended; the same command resumes what they left"

Look = Callable[[], None]  # restarts workers that were killed; UserError where none is left


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """SIGTERM stops as Ctrl-C does, so that leases are released."""
    if threading.current_thread() is not threading.main_thread():  # which alone has handlers
        yield
        return
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def processes(argv: list[str], options: argparse.Namespace, shards: int) -> Iterator[Look]:
    """Processes of this machine, which share its cores; they end with the block.

    Args:
        argv: the command's arguments.
        options: the same, parsed.
        shards: number of shards, which bounds how often killed processes are started again.
    """
    threads = {"OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // options.workers))}
    start = lambda: subprocess.Popen(command(argv), env=os.environ | threads)  # noqa: E731
    workers = [start() for _ in range(options.workers)]
    restarts = ATTEMPTS * shards

    def look() -> None:
        nonlocal restarts
        for i, worker in enumerate(workers):
            if (worker.poll() or 0) < 0 and restarts:  # by a signal: a crash, too little memory
                workers[i], restarts = start(), restarts - 1
        statuses = [worker.poll() for worker in workers]
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
def ray_tasks(argv: list[str], options: argparse.Namespace, shards: int) -> Iterator[Look]:
    """Tasks of a Ray cluster, one core each, and one GPU on cuda; Ray restarts those that die.

    All machines see the manifest, the recordings and the output folder under the same paths. Joins
    the cluster of RAY_ADDRESS, or starts one of this machine's cores.
    """
    need("ray")
    import ray

    joined = not ray.is_initialized()
    if joined:
        ray.init(log_to_driver=False)
    gpus = 1 if options.device.startswith("cuda") else 0
    task: Any = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=ATTEMPTS * shards)(decode_shards)
    tasks = [task.remote(argv, os.getcwd()) for _ in range(options.workers)]

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


def decode_shards(argv: list[str], folder: str) -> int:
    """A task of Ray: the command in the folder where it was given."""
    return subprocess.run(command(argv), cwd=folder, check=False).returncode


def command(argv: list[str]) -> list[str]:
    """The command line of a process that only decodes shards."""
    return [sys.executable, "-m", "asrkit.decode", *argv, *HELP]


Starter = Callable[[list[str], argparse.Namespace, int], AbstractContextManager[Look]]
STARTERS: dict[str, Starter] = {"processes": processes, "ray": ray_tasks}
