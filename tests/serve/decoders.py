"""Decoders of uploads that misbehave, for processes that import nothing slow."""

import os
import socket
import time
from collections.abc import Callable

import numpy as np

from asrkit.errors import UserError
from asrkit.serve.decode import HEADER, Job, confine, connected

GOOD = HEADER.pack(16000, 8000, 1)


def send(job: Job, *parts: bytes) -> list[str]:
    with connected(job) as sink:
        sink.sendall(b"".join(parts))
    return []


def compute(job: Job) -> list[str]:
    confine(job.memory, job.seconds)
    while True:
        sum(range(1000))


def hang(job: Job) -> list[str]:
    with connected(job) as sink:
        sink.sendall(GOOD)
        time.sleep(60)
    return []


def wait_for_release(job: Job) -> list[str]:
    """Wait until a file exists, whose path is in the environment."""
    with connected(job) as sink:
        sink.sendall(GOOD)
        while not os.path.exists(os.environ["TEST_RELEASE"]):
            time.sleep(0.01)
        sink.sendall(bytes(4 * 8000))
    return []


def connect_late(job: Job) -> list[str]:
    time.sleep(3)
    return send(job, GOOD)


def abort(job: Job) -> list[str]:
    os.abort()


def stop_within_a_sample(job: Job) -> list[str]:
    return send(job, GOOD, bytes(3))


def say_a_wrong_rate(job: Job) -> list[str]:
    return send(job, HEADER.pack(0, 8000, 1))


def meet_strangers(job: Job) -> list[str]:
    """Other programs connect: one leaves, one stays silent, and one comes later."""
    place = ("127.0.0.1", job.port)
    with socket.create_connection(place) as leaving:
        leaving.sendall(b"GET")
    with socket.create_connection(place, timeout=20) as silent:
        assert silent.recv(1) == b""
    with connected(job) as sink:
        try:
            socket.create_connection(place).close()
        except ConnectionRefusedError:
            sink.sendall(GOOD + bytes(4 * 8000))
    return []


def send_nan(job: Job) -> list[str]:
    return send(job, GOOD, np.float32([np.nan]).tobytes())


def write_escapes(job: Job) -> list[str]:
    raise UserError("\x1b[31mred")


def fill_memory(job: Job) -> list[str]:
    confine(job.memory, job.seconds)
    np.ones(2 * job.memory, np.uint8)
    return []


def within_limits(job: Job, work: Callable[[], object]) -> list[str]:
    confine(job.memory, job.seconds)
    try:
        work()
    except OSError as error:
        raise UserError(f"{error.strerror}") from None
    return []


def open_files(job: Job) -> list[str]:
    return within_limits(job, lambda: [open("/dev/null") for _ in range(100)])


def write_a_file(job: Job) -> list[str]:
    nameless = os.O_TMPFILE | os.O_WRONLY
    return within_limits(job, lambda: os.write(os.open("/tmp", nameless), bytes(999)))
