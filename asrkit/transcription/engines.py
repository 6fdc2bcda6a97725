"""Decoding by several processes: on this machine, or on a Ray cluster.

Both engines call `decode_part` with parts of the work, and yield the outcomes of a part when all of
it is decoded.
"""

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from itertools import islice
from multiprocessing import active_children, get_context, parent_process
from typing import Any

from asrkit.data.recording import Recording
from asrkit.errors import UserError, reason, shown
from asrkit.extras import need
from asrkit.runtime import Recognizer
from asrkit.transcription.batches import Decoded, outcomes

LARGEST_PART = 100  # recordings
Jobs = Sequence[Recording]
Shared = tuple[bytes, str, float]  # arguments of `decode_part` that all parts share


@cache
def recognizer_of(load: bytes) -> Recognizer:
    """Return this process's recogniser, which all its parts use."""
    recognizer: Recognizer = pickle.loads(load)()
    return recognizer


def decode_part(
    load: bytes, folder: str, batch_seconds: float, first: int, jobs: Jobs
) -> list[Decoded]:
    """Decode a part of the jobs in another process.

    Args:
        load: pickled function that returns the recogniser.
        folder: working folder, for relative paths.
    """
    os.chdir(folder)
    found = outcomes(recognizer_of(load), jobs, batch_seconds)
    return [outcome._replace(number=first + outcome.number) for outcome in found]


def decode_in_parts(
    engine: str, workers: int, load: Callable[[], Recognizer], jobs: Jobs, batch_seconds: float,
    device: str,
) -> Iterator[Decoded]:  # fmt: skip
    """Yield the outcomes of jobs that `workers` processes decode, in the order of their ends.

    Args:
        load: function of a module that returns the recogniser.
    """
    size = max(1, min(LARGEST_PART, -(-len(jobs) // (4 * workers))))
    parts = {first: jobs[first : first + size] for first in range(0, len(jobs), size)}
    shared = pickle.dumps(load), os.getcwd(), batch_seconds
    return ENGINES[engine](shared, parts, workers, device)


def in_processes(
    shared: Shared, parts: dict[int, Jobs], workers: int, device: str
) -> Iterator[Decoded]:
    """Yield the outcomes of all parts, decoded by processes of this machine."""
    left = {**parts}
    with ProcessPoolExecutor(workers, get_context("spawn"), end_with_parent) as pool:
        futures = {pool.submit(decode_part, *shared, *part): part[0] for part in parts.items()}
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


def on_ray(shared: Shared, parts: dict[int, Jobs], workers: int, device: str) -> Iterator[Decoded]:
    """Yield the outcomes of all parts, decoded by tasks on a Ray cluster, which repeats lost tasks.

    A task has a core and, on cuda, a GPU. The tasks run on the cluster of RAY_ADDRESS, or on a new
    one with this machine's cores. All machines need the model and the recordings under the same
    paths.
    """
    need("ray")
    import ray

    if starts := not ray.is_initialized():
        ray.init(logging_level="warning")
    task: Any = ray.remote(num_cpus=1, num_gpus=int(device.startswith("cuda")))(decode_part)
    waiting = iter(parts.items())
    running = [task.remote(*shared, *part) for part in islice(waiting, workers)]
    try:
        while running:
            (done,), running = ray.wait(running)
            yield from ray.get(done)
            running += [task.remote(*shared, *part) for part in islice(waiting, 1)]
    except ray.exceptions.RayError as error:
        cause = reason(getattr(error, "cause", error))
        raise UserError(f"a task of the Ray cluster failed: {cause}") from None
    finally:
        for each in running:
            ray.cancel(each)
        if starts:
            ray.shutdown()


ENGINES = {"processes": in_processes, "ray": on_ray}
